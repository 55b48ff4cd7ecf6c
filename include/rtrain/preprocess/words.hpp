// SPDX-License-Identifier: Apache-2.0
/// @file
/// Splits text into words as GPT-2 does before byte-pair encoding, and maps bytes to the characters
/// of its vocabulary. Cost tier 0: std only.
#pragma once

#include <rtrain/base/text/utf8.hpp>
#include <rtrain/preprocess/characters.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace rtrain::detail {

struct Character {
    char32_t code = 0;
    std::size_t bytes = 0; ///< 0: the text does not start with well-formed UTF-8
};

[[nodiscard]] inline Character first_character(std::string_view text) noexcept {
    const std::size_t length = utf8_length(text);
    if (length < 2) {
        return {length == 0 ? U'\0' : static_cast<unsigned char>(text[0]), length};
    }
    char32_t code = static_cast<unsigned char>(text[0]) & (0x7FU >> length);
    for (const char next : text.substr(1, length - 1)) {
        code = code << 6U | (static_cast<unsigned char>(next) & 0x3FU);
    }
    return {code, length};
}

inline void append_utf8(std::string& text, char32_t code) {
    const auto append = [&](char32_t byte) { text += static_cast<char>(byte); };
    if (code < 0x80) {
        append(code);
    } else if (code < 0x800) {
        append(0xC0 | code >> 6U);
        append(0x80 | (code & 0x3FU));
    } else if (code < 0x10000) {
        append(0xE0 | code >> 12U);
        append(0x80 | (code >> 6U & 0x3FU));
        append(0x80 | (code & 0x3FU));
    } else {
        append(0xF0 | code >> 18U);
        append(0x80 | (code >> 12U & 0x3FU));
        append(0x80 | (code >> 6U & 0x3FU));
        append(0x80 | (code & 0x3FU));
    }
}

/// Length in bytes of the first word of `text` (well-formed UTF-8, not empty): the first match of
///
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///
/// from A. Radford et al.: Language models are unsupervised multitask learners, 2019 (encoder.py).
[[nodiscard]] inline std::size_t first_word(std::string_view text) noexcept {
    for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
        if (text.starts_with(ending)) {
            return ending.size();
        }
    }
    enum class Kind : unsigned char { letter, number, space, other };
    const auto kind_of = [](char32_t code) {
        return is_in(letters, code)    ? Kind::letter
               : is_in(numerals, code) ? Kind::number
               : is_whitespace(code)   ? Kind::space
                                       : Kind::other;
    };
    std::size_t end = text.front() == ' ' && text.size() > 1 ? 1 : 0;
    Kind kind = kind_of(first_character(text.substr(end)).code);
    if (kind == Kind::space) {
        end = 0;
    }
    std::size_t last = 0; // offset of the word's last character
    while (end < text.size()) {
        const auto [code, bytes] = first_character(text.substr(end));
        if (kind_of(code) != kind) {
            break;
        }
        last = end;
        end += bytes;
    }
    // Whitespace before another word leaves its last character to that word.
    return kind == Kind::space && end < text.size() && last > 0 ? last : end;
}

/// The character that represents each byte: itself if printable, else one from U+0100 on.
[[nodiscard]] constexpr std::array<char32_t, 256> byte_characters() noexcept {
    std::array<char32_t, 256> characters{};
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
        const bool is_visible =
            (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
        characters[byte] = is_visible ? byte : next++;
    }
    return characters;
}

/// Encodes bytes as in a vocabulary.
[[nodiscard]] inline std::string spell(std::string_view bytes) {
    static constexpr auto characters = byte_characters();
    std::string spelled;
    for (const char byte : bytes) {
        append_utf8(spelled, characters[static_cast<unsigned char>(byte)]);
    }
    return spelled;
}

/// Reverses spell(); empty if `spelled` has other characters.
[[nodiscard]] inline std::optional<std::string> unspell(std::string_view spelled) {
    static constexpr auto characters = byte_characters();
    static constexpr auto bytes = [] {
        std::array<int, 0x144> found{};
        found.fill(-1);
        for (int byte = 0; byte < 256; ++byte) {
            found[characters[static_cast<std::size_t>(byte)]] = byte;
        }
        return found;
    }();
    std::string text;
    while (!spelled.empty()) {
        const auto [code, length] = first_character(spelled);
        if (length == 0 || code >= bytes.size() || bytes[code] < 0) {
            return std::nullopt;
        }
        text += static_cast<char>(bytes[code]);
        spelled.remove_prefix(length);
    }
    return text;
}

} // namespace rtrain::detail
