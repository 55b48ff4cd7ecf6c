// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text for a terminal: printable characters, and their widths in columns.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/text/utf8.hpp>
#include <rtrain/base/text/visible_text.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::console {

namespace internal {

using Range = std::pair<char32_t, char32_t>;

/// Zero-width: combining marks, joiners, variation selectors.
inline constexpr std::array no_column{
    Range{0x0300, 0x036f}, Range{0x0483, 0x0489}, Range{0x0591, 0x05bd}, Range{0x064b, 0x065f},
    Range{0x200b, 0x200d}, Range{0x20d0, 0x20ff}, Range{0xfe00, 0xfe0f}, Range{0xfe20, 0xfe2f}};
/// Double-width: East Asian scripts, emoji.
inline constexpr std::array two_columns{
    Range{0x1100, 0x115f},   Range{0x2e80, 0x303e},   Range{0x3041, 0xa4cf},
    Range{0xac00, 0xd7a3},   Range{0xf900, 0xfaff},   Range{0xfe30, 0xfe6f},
    Range{0xff00, 0xff60},   Range{0xffe0, 0xffe6},   Range{0x1f300, 0x1f64f},
    Range{0x1f680, 0x1f6ff}, Range{0x1f900, 0x1f9ff}, Range{0x20000, 0x3fffd}};

[[nodiscard]] constexpr bool is_in(const auto& ranges, char32_t c) noexcept {
    return std::any_of(ranges.begin(), ranges.end(),
                       [c](const Range& range) { return range.first <= c && c <= range.second; });
}

/// Calls `visit(character, columns)` for each; unprintable characters become '?'.
template <class Visit>
void each_character(std::string_view text, Visit&& visit) {
    while (!text.empty()) {
        const std::size_t length = rtrain::detail::utf8_length(text);
        const std::string_view character = text.substr(0, length);
        text.remove_prefix(std::max<std::size_t>(length, 1));
        const char32_t code = length == 0 ? 0 : rtrain::detail::code_point(character);
        if (rtrain::detail::is_control(code)) {
            visit(std::string_view("?"), 1);
        } else {
            visit(character, is_in(no_column, code) ? 0 : is_in(two_columns, code) ? 2 : 1);
        }
    }
}

} // namespace internal

/// Width of a printable text in columns.
[[nodiscard]] inline int columns_of(std::string_view text) {
    int columns = 0;
    internal::each_character(text, [&](std::string_view, int its) { columns += its; });
    return columns;
}

/// `text` as UTF-8, with a '?' for each byte that belongs to no character, and for each control
/// character, including the line break.
[[nodiscard]] inline std::string printable(std::string_view text) {
    std::string result;
    internal::each_character(text, [&](std::string_view character, int) { result += character; });
    return result;
}

/// Printable text of at most `columns` columns: a longer one ends in "..".
[[nodiscard]] inline std::string cut(std::string_view text, int columns) {
    std::string result = printable(text);
    if (columns_of(result) <= columns) {
        return result;
    }
    const int left = std::max(columns - 2, 0);
    std::string begin;
    int taken = 0;
    internal::each_character(result, [&](std::string_view character, int its) {
        taken += its;
        begin += taken <= left ? character : std::string_view();
    });
    return begin + std::string(static_cast<std::size_t>(std::min(std::max(columns, 0), 2)), '.');
}

/// Makes several lines printable; keeps line breaks and cuts none.
[[nodiscard]] inline std::string printable_lines(std::string_view text) {
    std::string result;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        result += printable(text.substr(0, end)) + '\n';
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return result;
}

} // namespace rtrain::console
