#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes include/rtrain/preprocess/characters.hpp: the code points that PyPI's tokenizers takes for letters
and numbers, as its byte-level pre-tokenizer shows. Version 0.23.3 has made the header that is there."""

import pathlib

from tokenizers import pre_tokenizers

HEADER = pathlib.Path(__file__).parents[3] / "include/rtrain/preprocess/characters.hpp"
words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def goes_with(before, code):
    """Whether the character is in one word with that before it."""
    return not 0xD800 <= code <= 0xDFFF and len(words.pre_tokenize_str(before + chr(code))) == 1


def ranges(before):
    found = []
    for code in range(0x110000):
        if goes_with(before, code):
            if found and found[-1][1] == code - 1:
                found[-1][1] = code
            else:
                found.append([code, code])
    return found


def listed(name, what, before):
    pairs = ranges(before)
    lines, line = [], "   "
    for first, last in pairs:
        item = f" {{{first:#x}, {last:#x}}},"
        if len(line) + len(item) > 100:
            lines.append(line)
            line = "   "
        line += item
    lines.append(line)
    return (f"/// {what}\n"
            f"inline constexpr CharacterRange {name}[] = {{\n" + "\n".join(lines) + "\n};\n")


HEADER.write_text("""// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which characters are letters, numbers, whitespace, as tokenizers have it (Unicode's classes L, N
/// and White_Space). Written by tests/data/preprocess/make_characters.py. Cost tier 0: std only.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>

namespace rtrain::detail {

/// Code points from `first` to `last`.
struct CharacterRange {
    char32_t first;
    char32_t last;
};

// clang-format off
""" + listed("letters", "Unicode's class L, in order.", "a") + "\n" +
                  listed("numerals", "Unicode's class N, in order.", "1") + """// clang-format on

/// Whether a code point is in one of these ranges.
[[nodiscard]] constexpr bool is_in(std::span<const CharacterRange> ranges, char32_t code) {
    const auto behind = std::ranges::upper_bound(ranges, code, {}, &CharacterRange::first);
    return behind != ranges.begin() && code <= std::prev(behind)->last;
}

[[nodiscard]] constexpr bool is_whitespace(char32_t code) {
    return (code >= 0x9 && code <= 0xd) || code == 0x20 || code == 0x85 || code == 0xa0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

} // namespace rtrain::detail
""", encoding="utf-8")
