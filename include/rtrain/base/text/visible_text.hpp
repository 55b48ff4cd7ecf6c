// SPDX-License-Identifier: Apache-2.0
/// @file
/// Escapes untrusted text, such as that of files and foreign exceptions, for a terminal. Cost tier
/// 0: std only.
#pragma once

#include <rtrain/base/text/utf8.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace rtrain::detail {

/// Returns the code point of a well-formed character.
[[nodiscard]] constexpr char32_t code_point(std::string_view character) noexcept {
    constexpr std::array<unsigned, 5> bits_of_first{0, 0x7f, 0x1f, 0x0f, 0x07};
    char32_t code = static_cast<unsigned char>(character[0]) & bits_of_first[character.size()];
    for (const char c : character.substr(1)) {
        code = (code << 6U) | (static_cast<unsigned char>(c) & 0x3fU);
    }
    return code;
}

/// True for characters that move the cursor, or change the order of adjacent characters.
[[nodiscard]] constexpr bool is_control(char32_t code) noexcept {
    return code < 0x20 || (0x7f <= code && code <= 0x9f) || code == 0x61c ||
           (0x200e <= code && code <= 0x200f) || (0x2028 <= code && code <= 0x202e) ||
           (0x2060 <= code && code <= 0x206f) || code == 0xfeff;
}

/// Returns `text` with control characters escaped as "\x1b" or "\u202e", and each byte that is not
/// UTF-8 as "\x9b". Keeps newlines and tabs.
[[nodiscard]] inline std::string visible(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        const char32_t code =
            length == 0 ? static_cast<unsigned char>(text[0]) : code_point(text.substr(0, length));
        if (length > 0 && (!is_control(code) || code == '\n' || code == '\t')) {
            result += text.substr(0, length);
        } else {
            std::array<char, 8> escape{};
            std::snprintf(escape.data(), escape.size(), length < 2 ? "\\x%02x" : "\\u%04x",
                          static_cast<unsigned>(code));
            result += escape.data();
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return result;
}

} // namespace rtrain::detail
