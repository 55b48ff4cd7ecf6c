// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sanitizes untrusted text, such as messages of foreign exceptions, for JSON.
#pragma once

#include <rtrain/base/text/utf8.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace rtrain::json {

/// Returns `text` as UTF-8 of at most `limit` bytes: each invalid byte becomes '?', and longer text
/// is truncated between characters.
[[nodiscard]] inline std::string clean_text(std::string_view text, std::size_t limit) {
    std::string result;
    while (!text.empty()) {
        const std::size_t length = detail::utf8_length(text);
        const std::string_view character = length == 0 ? "?" : text.substr(0, length);
        if (result.size() + character.size() > limit) {
            break;
        }
        result += character;
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return result;
}

} // namespace rtrain::json
