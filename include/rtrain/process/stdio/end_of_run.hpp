// SPDX-License-Identifier: Apache-2.0
/// @file
/// Marks the end of a run's output for readers, while its processes live on. Cost tier 0: std only.
#pragma once

#include <cstdio>
#include <string_view>

namespace rtrain::launch {

/// A line that ranks print to both streams after a run that others may follow. A driver removes it,
/// and prints it to a stream once all of its ranks have printed it.
inline constexpr std::string_view end_of_run = "\x1e(rtrain: end of run)";

inline void print_end_of_run() noexcept {
    for (std::FILE* const stream : {stdout, stderr}) {
        std::fprintf(stream, "%s\n", end_of_run.data());
        std::fflush(stream);
    }
}

} // namespace rtrain::launch
