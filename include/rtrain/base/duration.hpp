// SPDX-License-Identifier: Apache-2.0
/// @file
/// Seconds, as options have them, for clocks. Cost tier 0: std only.
#pragma once

#include <algorithm>
#include <chrono>

namespace rtrain::detail {

/// 30 years.
inline constexpr double longest_duration_s = 1e9;

/// What a clock can add to now: no less than 0, no more than the longest, also of infinity.
[[nodiscard]] inline std::chrono::nanoseconds duration_of(double seconds) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(std::clamp(seconds, 0.0, longest_duration_s)));
}

} // namespace rtrain::detail
