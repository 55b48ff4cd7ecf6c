// SPDX-License-Identifier: Apache-2.0
/// @file
/// ErrorCode: the code of an error, `RT-<letter><number>`, checked by the compiler against the
/// table of all codes (base/error_table.inc). Cost tier 0: std only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace rtrain {

/// Where a code occurs: in a message of the compiler or of a process, or in an exception of one
/// class (base/error.hpp); `plain` is Error itself.
enum class ErrorClass : std::uint8_t {
    compile_time,
    message,
    plain,
    config,
    data,
    model,
    checkpoint,
    storage,
    transient_storage,
    comm,
    peer,
    launch,
    preemption,
    training_failed
};

namespace detail {

struct ErrorRow {
    char letter;
    std::uint16_t number;
    ErrorClass type;

    [[nodiscard]] constexpr bool is_before(char other, unsigned other_number) const noexcept {
        return letter != other ? letter < other : number < other_number;
    }
};

#define RTRAIN_ERROR(letter, number, type, meaning, advice) {#letter[0], number, ErrorClass::type},
inline constexpr ErrorRow error_table[] = {
#include <rtrain/base/error_table.inc>
};
#undef RTRAIN_ERROR

static_assert(
    [] {
        for (std::size_t i = 1; i < std::size(error_table); ++i) {
            if (!error_table[i - 1].is_before(error_table[i].letter, error_table[i].number)) {
                return false;
            }
        }
        return true;
    }(),
    "base/error_table.inc must be sorted by letter and number, without duplicates");

inline constexpr std::size_t not_in_error_table = std::size(error_table);

/// Returns the index of a code's row. (With -fsanitize=undefined, g++ 12 does not take pointers to
/// rows for constants.)
[[nodiscard]] constexpr std::size_t find_error(std::string_view code) noexcept {
    constexpr std::size_t most_digits = 4;
    if (!code.starts_with("RT-") || code.size() < 5 || code.size() > 4 + most_digits ||
        code[4] == '0') {
        return not_in_error_table;
    }
    unsigned number = 0;
    for (const char digit : code.substr(4)) {
        if (digit < '0' || '9' < digit) {
            return not_in_error_table;
        }
        number = 10 * number + static_cast<unsigned>(digit - '0');
    }
    std::size_t first = 0;
    for (std::size_t rows = std::size(error_table); rows > 0;) {
        const std::size_t half = rows / 2;
        const bool is_after = error_table[first + half].is_before(code[3], number);
        first += is_after ? half + 1 : 0;
        rows = is_after ? rows - half - 1 : half;
    }
    const bool found = first < std::size(error_table) && error_table[first].letter == code[3] &&
                       error_table[first].number == number;
    return found ? first : not_in_error_table;
}

// Not constexpr: the compiler names these functions in its message.
void this_error_code_is_not_in_the_table();
void the_table_gives_this_error_code_to_another_class();

} // namespace detail

/// The code of an error, as a value. A literal must be in the table.
class ErrorCode {
public:
    static constexpr std::size_t longest = 15; ///< characters

    /// No code.
    constexpr ErrorCode() noexcept = default;
    // NOLINTNEXTLINE(google-explicit-constructor): literals are codes
    consteval ErrorCode(const char* text) : ErrorCode(parse(text)) {
        if (detail::find_error(text) == detail::not_in_error_table) {
            detail::this_error_code_is_not_in_the_table();
        }
    }
    /// Accepts any text, such as a program's own code; keeps the first 15 characters.
    [[nodiscard]] static constexpr ErrorCode parse(std::string_view text) noexcept {
        ErrorCode code;
        const std::size_t row = detail::find_error(text);
        code.type_ =
            row != detail::not_in_error_table ? detail::error_table[row].type : ErrorClass::plain;
        text.substr(0, longest).copy(code.text_.data(), longest);
        return code;
    }

    [[nodiscard]] std::string text() const { return text_.data(); }
    [[nodiscard]] constexpr bool empty() const noexcept { return text_[0] == '\0'; }
    /// The class that the table gives it; `plain` for a code that is not in the table.
    [[nodiscard]] constexpr ErrorClass type() const noexcept { return type_; }

    friend constexpr bool operator==(const ErrorCode&, const ErrorCode&) noexcept = default;

private:
    std::array<char, longest + 1> text_{};
    ErrorClass type_ = ErrorClass::plain;
};

/// The code that an exception of one class is constructed with: a literal that the table gives to
/// this class, or a program's own code, which does not begin with "RT-".
template <ErrorClass type>
class CodeOf {
public:
    // NOLINTNEXTLINE(google-explicit-constructor): literals are codes
    consteval CodeOf(const char* text) : text_(text) {
        if (text_.starts_with("RT-") && ErrorCode(text).type() != type) {
            detail::the_table_gives_this_error_code_to_another_class();
        }
    }
    /// A code from elsewhere, unchecked. `text` outlives this object.
    // NOLINTNEXTLINE(google-explicit-constructor): Error(std::string, ...) is public
    CodeOf(const std::string& text) noexcept : text_(text) {}

    [[nodiscard]] std::string text() const { return std::string(text_); }

private:
    std::string_view text_;
};

} // namespace rtrain
