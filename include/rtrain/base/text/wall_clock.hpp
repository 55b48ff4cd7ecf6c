// SPDX-License-Identifier: Apache-2.0
/// @file
/// The time of day, as recorded in files. Cost tier 0: std only.
#pragma once

#include <chrono>

namespace rtrain::detail {

[[nodiscard]] inline double seconds_since_1970() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

} // namespace rtrain::detail
