// SPDX-License-Identifier: Apache-2.0
/// @file
/// Groups the errors of many ranks: those that differ only in numbers (a rank, an address, a size)
/// are one error.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/rank_prefix.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain {
namespace detail {

[[nodiscard]] constexpr bool is_digit(char c) noexcept {
    return '0' <= c && c <= '9';
}

[[nodiscard]] constexpr bool is_hex_digit(char c) noexcept {
    return is_digit(c) || ('a' <= c && c <= 'f') || ('A' <= c && c <= 'F');
}

/// Returns the end of the digits that begin at `at`.
template <class Predicate>
[[nodiscard]] std::size_t end_of_digits(std::string_view text, std::size_t at, Predicate is) {
    while (at < text.size() && is(text[at])) {
        ++at;
    }
    return at;
}

/// Returns the end of the number that begins at `at` with a digit: 17, 1.5e-3, 0x7f2c.
[[nodiscard]] inline std::size_t end_of_number(std::string_view text, std::size_t at) {
    const auto digit_at = [&](std::size_t i) { return i < text.size() && is_digit(text[i]); };
    if (text.substr(at, 2) == "0x" && at + 2 < text.size() && is_hex_digit(text[at + 2])) {
        return end_of_digits(text, at + 2, is_hex_digit);
    }
    at = end_of_digits(text, at, is_digit);
    if (at < text.size() && text[at] == '.' && digit_at(at + 1)) {
        at = end_of_digits(text, at + 1, is_digit);
    }
    if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
        const bool sign = at + 1 < text.size() && (text[at + 1] == '-' || text[at + 1] == '+');
        const std::size_t exponent = at + (sign ? 2 : 1);
        if (digit_at(exponent)) {
            at = end_of_digits(text, exponent, is_digit);
        }
    }
    return at;
}

} // namespace detail

namespace launch {

/// Returns `text` with `<NUM>` in place of each number, to compare two errors.
[[nodiscard]] inline std::string without_numbers(std::string_view text) {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
        if (detail::is_digit(text[at])) {
            result += "<NUM>";
            at = detail::end_of_number(text, at);
        } else {
            result += text[at++];
        }
    }
    return result;
}

/// "0-3, 7": ranks in ascending order, three or more consecutive ranks as a range.
[[nodiscard]] inline std::string list_of_ranks(const std::vector<int>& ranks) {
    std::string result;
    for (std::size_t begin = 0; begin < ranks.size();) {
        std::size_t end = begin + 1;
        while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
            ++end;
        }
        if (end - begin < 3) {
            end = begin + 1;
        }
        result += (result.empty() ? "" : ", ") + std::to_string(ranks[begin]);
        if (end - begin >= 3) {
            result += "-" + std::to_string(ranks[end - 1]);
        }
        begin = end;
    }
    return result;
}

/// "rank 3", "ranks 0-2, 7".
[[nodiscard]] inline std::string ranks_named(const std::vector<int>& ranks) {
    return (ranks.size() == 1 ? "rank " : "ranks ") + list_of_ranks(ranks);
}

/// Returns a line for each group of equal errors, each after a newline: its ranks, and the error of
/// the first. `texts`: rank -> error, of `size` ranks. An error that names its rank counts as that
/// rank's.
///
/// @code
///   ranks 0-2 of 4: file 17.bin is missing
///   rank 3 of 4: out of memory
/// @endcode
[[nodiscard]] inline std::string group_by_text(const std::map<int, std::string>& texts, int size) {
    struct Group {
        std::string key;
        std::string_view text;
        std::vector<int> ranks;
    };
    // An error that all ranks throw because one of them hit it is counted once, for that rank.
    std::set<std::pair<int, std::string_view>> errors;
    for (const auto& [rank, text] : texts) {
        const auto told = detail::error_of_rank(text, size);
        errors.insert(told ? std::pair(told->rank, told->text)
                           : std::pair(rank, std::string_view(text)));
    }
    std::vector<Group> groups; // in the order of first ranks
    for (const auto& [rank, text] : errors) {
        const std::string key = without_numbers(text);
        auto group = std::find_if(groups.begin(), groups.end(),
                                  [&](const Group& other) { return other.key == key; });
        if (group == groups.end()) {
            group = groups.insert(groups.end(), {key, text, {}});
        }
        if (group->ranks.empty() || group->ranks.back() != rank) {
            group->ranks.push_back(rank);
        }
    }
    std::string result;
    for (const Group& group : groups) {
        result += detail::concat("\n  ", ranks_named(group.ranks), " of ", size, ": ", group.text);
    }
    return result;
}

} // namespace launch
} // namespace rtrain
