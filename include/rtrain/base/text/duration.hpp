// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts options in seconds to durations. Cost tier 0: std only.
#pragma once

#include <algorithm>
#include <chrono>

namespace rtrain::detail {

/// 30 years.
inline constexpr double longest_duration_s = 1e9;

/// Returns a duration that can be added to the current time: clamped to 0 and the longest, also for
/// infinity.
[[nodiscard]] inline std::chrono::nanoseconds duration_of(double seconds) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(std::clamp(seconds, 0.0, longest_duration_s)));
}

} // namespace rtrain::detail
