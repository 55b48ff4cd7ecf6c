// SPDX-License-Identifier: Apache-2.0
/// @file
/// number_in(): a number that is all of a text. Cost tier 0: std only.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace rtrain::detail {

template <class Number>
[[nodiscard]] std::optional<Number> number_in(std::string_view text) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size() ? std::optional(number)
                                                                    : std::nullopt;
}

} // namespace rtrain::detail
