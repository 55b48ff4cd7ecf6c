// SPDX-License-Identifier: Apache-2.0
/// @file
/// UTF-8 text that is safe to use as a name. Cost tier 0: std only.
#pragma once

#include <rtrain/base/text/utf8.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rtrain::checkpoint {

/// True if `text` is well-formed UTF-8 (no overlong forms, no surrogates) without control
/// characters, line separators, or bidirectional formatting marks.
[[nodiscard]] inline bool is_plain_text(std::string_view text) noexcept {
    while (!text.empty()) {
        const std::size_t length = detail::utf8_length(text);
        if (length == 0) {
            return false;
        }
        std::uint32_t code = static_cast<unsigned char>(text[0]);
        if (length > 1) {
            code &= 0x7FU >> length;
            for (const char next : text.substr(1, length - 1)) {
                code = code << 6U | (static_cast<unsigned char>(next) & 0x3FU);
            }
        }
        const auto within = [code](std::uint32_t first, std::uint32_t last) {
            return first <= code && code <= last;
        };
        if (code < 0x20 || within(0x7F, 0x9F) || within(0x2028, 0x202E) || within(0x2066, 0x2069)) {
            return false;
        }
        text.remove_prefix(length);
    }
    return true;
}

} // namespace rtrain::checkpoint
