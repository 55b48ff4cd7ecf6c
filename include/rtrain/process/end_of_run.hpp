// SPDX-License-Identifier: Apache-2.0
/// @file
/// How those who read what ranks print learn that a run has printed all it prints, though its
/// processes live on. Cost tier 0: std only.
#pragma once

#include <cstdio>
#include <string_view>

namespace rtrain::launch {

/// A line that ranks print to both streams behind a run that others may follow. A driver takes it
/// out, and prints it to a stream when it had it from all of its ranks.
inline constexpr std::string_view end_of_run = "\x1e(rtrain: end of run)";

inline void print_end_of_run() noexcept {
    for (std::FILE* const stream : {stdout, stderr}) {
        std::fprintf(stream, "%s\n", end_of_run.data());
        std::fflush(stream);
    }
}

} // namespace rtrain::launch
