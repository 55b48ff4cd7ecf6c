// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of the values of schedules, and the arithmetic that schedules share. Cost tier 0: std
/// only.
#pragma once

#include <rtrain/base/error.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

namespace rtrain::schedule {

/// The number of steps of a schedule that never ends.
inline constexpr std::int64_t forever = std::numeric_limits<std::int64_t>::max();

namespace internal {

/// The default of a number of steps that must be given.
inline constexpr std::int64_t unset = -1;
inline constexpr double largest = std::numeric_limits<double>::max();

template <class Value, class Bound>
[[noreturn]] void throw_bad_value(const char* schedule, const char* field, Value value,
                                  const char* must, Bound bound) {
    throw ConfigError("RT-C80", detail::concat("schedule::", schedule, ": ", field, " is ", value,
                                               "; it must be ", must, " ", bound));
}
[[noreturn]] inline void throw_before_start(const char* schedule, std::int64_t step) {
    throw ConfigError("RT-C81", detail::concat("schedule::", schedule, " was evaluated at step ",
                                               step, "; steps begin at 0"));
}
[[noreturn]] inline void throw_past_end(const char* schedule, std::int64_t end, std::int64_t step) {
    throw ConfigError("RT-C81", detail::concat("schedule::", schedule, " ends at step ", end,
                                               ", but was evaluated at step ", step,
                                               "; give it as many steps as the training has, or "
                                               "add a schedule with then()"));
}

/// Throws ConfigError [RT-C80] if a number of steps is below `least`.
constexpr void require_steps(const char* schedule, const char* field, std::int64_t steps,
                             std::int64_t least) {
    if (steps < least) {
        throw_bad_value(schedule, field, steps, "at least", least);
    }
}
/// Throws ConfigError [RT-C80] if a value is NaN, below `least` or above `most`.
constexpr void require_between(const char* schedule, const char* field, double value, double least,
                               double most = largest) {
    if (!(value >= least)) {
        throw_bad_value(schedule, field, value, "at least", least);
    }
    if (value > most) {
        throw_bad_value(schedule, field, value, "at most", most);
    }
}
/// Throws ConfigError [RT-C81] for a step before the start.
constexpr void require_step(const char* schedule, std::int64_t step) {
    if (step < 0) {
        throw_before_start(schedule, step);
    }
}
/// Also throws it for a step past the end; the end itself is the rate after the last step.
constexpr void require_step(const char* schedule, std::int64_t step, std::int64_t end) {
    require_step(schedule, step);
    if (step > end) {
        throw_past_end(schedule, end, step);
    }
}

/// std::pow; in constant expressions the exponent must be a whole number.
constexpr double power(double base, double exponent) {
    if (!std::is_constant_evaluated()) {
        return std::pow(base, exponent);
    }
    double result = 1;
    for (auto left = static_cast<std::int64_t>(exponent); left > 0; left /= 2) {
        result *= left % 2 == 1 ? base : 1;
        base *= base;
    }
    return result;
}

/// The half cosine from `start` to `end`; `part` is from 0 to 1.
inline double cosine(double start, double end, double part) {
    return end + (start - end) * (1 + std::cos(std::numbers::pi * part)) / 2;
}
constexpr double ratio(std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
}

} // namespace internal
} // namespace rtrain::schedule
