// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text that may become a name: UTF-8 that shows as what it is. Cost tier 0: std only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rtrain::checkpoint {

/// True when `text` is well-formed UTF-8 (no overlong forms, no surrogates) without control
/// characters, line separators, or marks that change the direction of writing.
[[nodiscard]] inline bool is_plain_text(std::string_view text) noexcept {
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i++]);
        std::uint32_t code = lead;
        std::size_t more = 0;
        std::uint32_t smallest = 0;
        if (lead >= 0x80) {
            more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
            smallest = more == 3 ? 0x10000 : more == 2 ? 0x800 : 0x80;
            if (lead < 0xC2 || lead > 0xF4 || more > text.size() - i) {
                return false;
            }
            code = lead & (0x3FU >> more);
        }
        for (; more > 0; --more) {
            const auto next = static_cast<unsigned char>(text[i++]);
            if ((next & 0xC0U) != 0x80) {
                return false;
            }
            code = code << 6U | (next & 0x3FU);
        }
        const auto within = [code](std::uint32_t first, std::uint32_t last) {
            return first <= code && code <= last;
        };
        if (code < smallest || code > 0x10FFFF || within(0xD800, 0xDFFF) || code < 0x20 ||
            within(0x7F, 0x9F) || within(0x2028, 0x202E) || within(0x2066, 0x2069)) {
            return false;
        }
    }
    return true;
}

} // namespace rtrain::checkpoint
