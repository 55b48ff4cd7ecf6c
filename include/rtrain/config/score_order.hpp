// SPDX-License-Identifier: Apache-2.0
/// @file
/// ScoreOrder: which end of a score is the better one. Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>

#include <string_view>

namespace rtrain {

/// "max" or "min": which end of a score is the better one.
class ScoreOrder {
public:
    /// Which end is the better one.
    enum Value : unsigned char {
        max, ///< the larger, the better
        min  ///< the smaller, the better
    };

    constexpr ScoreOrder(Value value) noexcept : value_(value) {} // NOLINT(google-explicit-*)
    ScoreOrder(std::string_view name) : value_(name == "min" ? min : max) { // NOLINT
        if (name != "min" && name != "max") {
            throw ConfigError("RT-C3", detail::concat("\"", name,
                                                      "\" is no order of scores; expected \"max\" "
                                                      "or \"min\""));
        }
    }
    ScoreOrder(const char* name) : ScoreOrder(std::string_view(name)) {} // NOLINT

    [[nodiscard]] constexpr operator Value() const noexcept { return value_; } // NOLINT

private:
    Value value_;
};

} // namespace rtrain
