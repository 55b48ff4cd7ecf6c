// SPDX-License-Identifier: Apache-2.0
/// @file
/// ScoreOrder: whether larger or smaller scores are better, and how NaN and failures rank. Cost
/// tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/name_table.hpp>

#include <cmath>
#include <limits>
#include <string_view>

namespace rtrain {

/// "max" or "min": whether larger or smaller scores are better.
class ScoreOrder {
public:
    enum Value : unsigned char {
        max, ///< the larger, the better
        min  ///< the smaller, the better
    };
    static constexpr auto names = detail::name_table<Value>({{max, "max"}, {min, "min"}});

    constexpr ScoreOrder(Value value) noexcept : value_(value) {} // NOLINT(google-explicit-*)
    ScoreOrder(std::string_view name) : value_(names.parse(name).value_or(max)) { // NOLINT
        if (!names.parse(name)) {
            throw ConfigError("RT-C3", detail::concat("\"", name,
                                                      "\" is not a score order; expected \"max\" "
                                                      "or \"min\""));
        }
    }
    ScoreOrder(const char* name) : ScoreOrder(std::string_view(name)) {} // NOLINT

    [[nodiscard]] constexpr operator Value() const noexcept { return value_; } // NOLINT

private:
    Value value_;
};

namespace detail {

/// The rule of searches and retention: NaN, which also represents a failure, is worse than any
/// other result, infinities included.
[[nodiscard]] inline bool is_worse(double one, double other, ScoreOrder mode) noexcept {
    return std::isnan(one)           ? !std::isnan(other)
           : mode == ScoreOrder::max ? one < other
                                     : one > other;
}

/// The rule for arithmetic in which more is better: NaN becomes minus infinity.
[[nodiscard]] inline double or_worst(double score) noexcept {
    return std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
}

} // namespace detail
} // namespace rtrain
