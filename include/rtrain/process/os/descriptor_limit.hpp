// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks whether a process may open as many files, pipes and sockets as a run needs. Beyond the
/// limit mpirun and MPI hang silently, so this is checked before the start.
#pragma once

#include <rtrain/base/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include <sys/resource.h>

namespace rtrain::launch {

/// Returns the number of open descriptors of this process.
[[nodiscard]] inline int open_descriptors() {
    std::error_code error;
    int count = 0;
    for (std::filesystem::directory_iterator item("/proc/self/fd", error), end;
         !error && item != end; item.increment(error)) {
        ++count;
    }
    return std::max(0, count - 1); // the iterator's own
}

/// Returns how many the driver, its mpirun and each rank need for so many ranks; `here`: those on
/// this machine. Measured with Open MPI 4.1, where mpirun needs 27 and 4 for each rank here.
[[nodiscard]] inline int descriptors_for_launch(int ranks, int here, int open) {
    constexpr int of_mpirun = 32;
    constexpr int of_each = 4;
    constexpr int of_driver = 24;
    return std::max(of_mpirun + of_each * here, open + of_driver + ranks);
}

/// Returns how many a rank needs to which `peers` ranks connect, those of its machine or, if it
/// detects hangs, all: MPI's, a socket to the driver, one for each peer, and a few for files.
[[nodiscard]] inline int descriptors_for_rank(int peers, int open) {
    constexpr int of_rank = 24;
    return open + of_rank + peers;
}

/// Throws LaunchError [RT-L17] if this process may have fewer than `needed` open.
inline void require_descriptors(int needed, const std::string& for_what) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= static_cast<rlim_t>(needed)) {
        return;
    }
    const bool may_raise =
        limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= static_cast<rlim_t>(needed);
    throw LaunchError(
        "RT-L17", detail::concat(
                      "a process may have ", limit.rlim_cur, " files open here (ulimit -n), but ",
                      for_what, " needs ", needed, "; before starting the program, run `ulimit -n ",
                      std::max(1024, 2 * needed), '`',
                      may_raise ? ""
                                : detail::concat(", for which the hard limit, ", limit.rlim_max,
                                                 ", must be raised, too")));
}

} // namespace rtrain::launch
