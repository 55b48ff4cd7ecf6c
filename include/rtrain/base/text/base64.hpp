// SPDX-License-Identifier: Apache-2.0
/// @file
/// Base64 encoding and decoding (RFC 4648).
/// Cost tier 0: std only.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::detail {

inline constexpr std::string_view base64_digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

[[nodiscard]] inline std::string to_base64(std::string_view bytes) {
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
        unsigned bits = 0;
        for (std::size_t i = at; i < at + 3; ++i) {
            bits = bits << 8U | (i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U);
        }
        for (std::size_t i = 0; i < 4; ++i) {
            text += at + i <= bytes.size() ? base64_digits[bits >> (18 - 6 * i) & 63U] : '=';
        }
    }
    return text;
}

/// nullopt unless `text` is an output of to_base64().
[[nodiscard]] inline std::optional<std::string> from_base64(std::string_view text) {
    if (text.size() % 4 != 0) {
        return std::nullopt;
    }
    std::size_t padding = 0;
    while (padding < 2 && text.ends_with('=')) {
        text.remove_suffix(1);
        ++padding;
    }
    std::string bytes;
    bytes.reserve(text.size() / 4 * 3 + 2);
    std::size_t bits = 0;
    unsigned held = 0; // bits of an incomplete byte
    for (const char letter : text) {
        const std::size_t digit = base64_digits.find(letter);
        if (digit == std::string_view::npos) {
            return std::nullopt;
        }
        bits = (bits << 6U | digit) & 0xfffU;
        held += 6;
        if (held >= 8) {
            held -= 8;
            bytes += static_cast<char>(bits >> held & 0xffU);
        }
    }
    const bool is_whole = (bits & ((std::size_t{1} << held) - 1)) == 0;
    return is_whole ? std::optional(std::move(bytes)) : std::nullopt;
}

} // namespace rtrain::detail
