// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run's progress, as rank 0 sends it to the driver, which owns the terminal.
#pragma once

#include <rtrain/console/bar.hpp>
#include <rtrain/launch/control/events.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace rtrain::launch {

/// Replaces negative numbers and those that are not finite, which the driver would reject, by 0.
[[nodiscard]] inline RankEvent to_event(console::Progress now) {
    for (std::int64_t* const count : {&now.epoch, &now.epochs, &now.done, &now.total}) {
        *count = std::max<std::int64_t>(*count, 0);
    }
    for (double* const number : {&now.elapsed_s, &now.rate}) {
        *number = std::isfinite(*number) ? std::max(*number, 0.0) : 0.0;
    }
    return now;
}

} // namespace rtrain::launch
