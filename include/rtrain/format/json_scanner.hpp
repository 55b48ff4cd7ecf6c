// SPDX-License-Identifier: Apache-2.0
/// @file
/// A fast path for common rows, several times as fast as a full parser: strings without escapes,
/// integers of at most 18 digits, and other numbers. Text that it accepts is JSON, and has the
/// value that json_row.hpp gives it. It rejects everything else without a reason.
#pragma once

#include <rtrain/base/text/utf8.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace rtrain::format {

/// True if a double holds an integer of this magnitude exactly.
[[nodiscard]] constexpr bool is_exact_double(std::uint64_t magnitude) noexcept {
    return magnitude == 0 || magnitude >> std::countr_zero(magnitude) <= std::uint64_t{1} << 53U;
}

/// True if `text` is written as an integer and equals `value`, the double nearest to it: "123", but
/// not "1.5" or "1e3", which are always rounded.
[[nodiscard]] inline bool holds_integer(double value, std::string_view text) {
    std::string_view digits = text;
    digits.remove_prefix(digits.starts_with('-') || digits.starts_with('+') ? 1 : 0);
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) {
        return true;
    }
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size() - 1));
    std::array<char, 400> exact{};
    const auto [end, error] = std::to_chars(exact.data(), exact.data() + exact.size(),
                                            std::abs(value), std::chars_format::fixed);
    return error == std::errc() && digits == std::string_view(exact.data(), end);
}

/// Scans one JSON text. A member function that fails leaves the position somewhere inside the text
/// that it rejected.
class JsonScanner {
public:
    explicit JsonScanner(std::string_view text) noexcept : text_(text) {}

    /// True if key() can distinguish this name from others.
    [[nodiscard]] static bool is_plain(std::string_view name) noexcept {
        return JsonScanner(name).find_text_end() == name.size();
    }

    [[nodiscard]] bool take(char c) noexcept {
        skip_blanks();
        return take_now(c);
    }
    /// True if nothing is left, not even whitespace.
    [[nodiscard]] bool is_at_end() const noexcept { return at_ == text_.size(); }
    /// Consumes `"name":`, where the name is_plain().
    [[nodiscard]] bool take_key(std::string_view name) noexcept {
        return take('"') && take_word(name) && take_now('"') && take(':');
    }
    [[nodiscard]] bool take_null() noexcept {
        skip_blanks();
        return take_word("null");
    }

    [[nodiscard]] std::optional<bool> take_boolean() noexcept {
        skip_blanks();
        if (take_word("true")) {
            return true;
        }
        return take_word("false") ? std::optional(false) : std::nullopt;
    }
    [[nodiscard]] std::optional<std::int64_t> take_integer() noexcept {
        const auto number = scan_number();
        return number ? number->integer() : std::nullopt;
    }
    /// Also accepts an integer that a double holds exactly.
    [[nodiscard]] std::optional<double> take_real() noexcept {
        const auto number = scan_number();
        return number ? number->real() : std::nullopt;
    }
    /// Returns a view into the JSON.
    [[nodiscard]] std::optional<std::string_view> take_text() noexcept {
        if (!take('"')) {
            return std::nullopt;
        }
        const std::size_t begin = at_;
        at_ = find_text_end();
        const std::size_t end = at_;
        return take_now('"') ? std::optional(text_.substr(begin, end - begin)) : std::nullopt;
    }
    /// Consumes a list, calling `take_element()` for each element.
    template <class TakeElement>
    [[nodiscard]] bool take_list(TakeElement&& take_element) {
        if (!take('[')) {
            return false;
        }
        if (take(']')) {
            return true;
        }
        do {
            if (!take_element()) {
                return false;
            }
        } while (take(','));
        return take(']');
    }

    /// Consumes a null, boolean, number, string, or list of numbers.
    [[nodiscard]] bool skip_value() {
        skip_blanks();
        switch (at_ < text_.size() ? text_[at_] : '\0') {
        case '"':
            return take_text().has_value();
        case 'n':
            return take_null();
        case 't':
        case 'f':
            return take_boolean().has_value();
        case '[':
            return take_list([this] { return scan_number().has_value(); });
        default:
            return scan_number().has_value();
        }
    }

private:
    /// A number as written: ± mantissa × 10^exponent.
    struct Number {
        std::string_view text;
        std::uint64_t mantissa = 0; ///< valid for at most 19 digits
        std::int64_t digits = 0;
        std::int64_t exponent = 0;
        bool is_negative = false;
        bool is_integer = true;

        [[nodiscard]] std::optional<std::int64_t> integer() const noexcept {
            const bool is_minus_zero = is_negative && mantissa == 0;
            if (!is_integer || digits > 18 || is_minus_zero) {
                return std::nullopt;
            }
            const auto number = static_cast<std::int64_t>(mantissa);
            return is_negative ? -number : number;
        }
        [[nodiscard]] std::optional<double> real() const noexcept {
            constexpr std::uint64_t exact = std::uint64_t{1} << 53U;
            if (is_integer) {
                const auto number = integer();
                return number && mantissa <= exact ? std::optional(static_cast<double>(*number))
                                                   : std::nullopt;
            }
            // If both operands are exact, one division or multiplication is rounded only once.
            constexpr std::array<double, 23> powers{1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
            constexpr auto most = std::int64_t{powers.size()} - 1;
            if (digits <= 19 && mantissa <= exact && -most <= exponent && exponent <= most) {
                const auto number = static_cast<double>(mantissa) * (is_negative ? -1.0 : 1.0);
                return exponent < 0 ? number / powers[static_cast<std::size_t>(-exponent)]
                                    : number * powers[static_cast<std::size_t>(exponent)];
            }
            double number = 0;
            const auto [end, error] =
                std::from_chars(text.data(), text.data() + text.size(), number);
            const bool is_whole = error == std::errc() && end == text.data() + text.size();
            return is_whole ? std::optional(number) : std::nullopt;
        }
    };

    [[nodiscard]] std::optional<Number> scan_number() noexcept {
        skip_blanks();
        const std::size_t begin = at_;
        Number number;
        number.is_negative = take_now('-');
        const bool begins_with_zero = at_ < text_.size() && text_[at_] == '0';
        const std::size_t whole = scan_digits(number);
        if (whole == 0 || (begins_with_zero && whole > 1)) {
            return std::nullopt;
        }
        if (take_now('.')) {
            number.is_integer = false;
            const std::size_t places = scan_digits(number);
            if (places == 0) {
                return std::nullopt;
            }
            number.exponent = -static_cast<std::int64_t>(places);
        }
        if (take_now('e') || take_now('E')) {
            number.is_integer = false;
            const bool is_negative = take_now('-');
            if (!is_negative) {
                static_cast<void>(take_now('+'));
            }
            Number exponent;
            const std::size_t digits = scan_digits(exponent);
            if (digits == 0 || digits > 4) {
                return std::nullopt;
            }
            const auto power = static_cast<std::int64_t>(exponent.mantissa);
            number.exponent += is_negative ? -power : power;
        }
        number.text = {text_.data() + begin, at_ - begin};
        return number;
    }

    /// Returns the number of digits.
    std::size_t scan_digits(Number& number) noexcept {
        const std::size_t begin = at_;
        for (; at_ < text_.size() && '0' <= text_[at_] && text_[at_] <= '9'; ++at_) {
            number.mantissa = number.mantissa * 10 + static_cast<std::uint64_t>(text_[at_] - '0');
        }
        number.digits += static_cast<std::int64_t>(at_ - begin);
        return at_ - begin;
    }

    /// Returns the end of the current string, or the position where it ceases to be plain.
    [[nodiscard]] std::size_t find_text_end() const noexcept {
        for (std::size_t at = at_; at < text_.size();) {
            const auto byte = static_cast<unsigned char>(text_[at]);
            const std::size_t length = byte < 0x80 ? 1 : detail::utf8_length(text_.substr(at));
            if (byte == '"' || byte == '\\' || byte < 0x20 || length == 0) {
                return at;
            }
            at += length;
        }
        return text_.size();
    }

    void skip_blanks() noexcept {
        while (at_ < text_.size() &&
               (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) {
            ++at_;
        }
    }
    [[nodiscard]] bool take_now(char c) noexcept {
        const bool is_there = at_ < text_.size() && text_[at_] == c;
        at_ += is_there ? 1 : 0;
        return is_there;
    }
    [[nodiscard]] bool take_word(std::string_view word) noexcept {
        const bool is_there = text_.compare(at_, word.size(), word) == 0;
        at_ += is_there ? word.size() : 0;
        return is_there;
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

} // namespace rtrain::format
