// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether a process may open as many files, pipes and sockets as a run needs. Beyond the limit
/// mpirun and MPI wait without a word for what cannot come, so it is looked at before the start.
#pragma once

#include <rtrain/base/error.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include <sys/resource.h>

namespace rtrain::launch {

/// Descriptors that this process has open.
[[nodiscard]] inline int open_descriptors() {
    std::error_code error;
    int count = 0;
    for (std::filesystem::directory_iterator item("/proc/self/fd", error), end;
         !error && item != end; item.increment(error)) {
        ++count;
    }
    return std::max(0, count - 1); // the iterator's own
}

/// What the driver, its mpirun and each rank need, for so many ranks; `here`: of these on this
/// machine. Measured with Open MPI 4.1, where mpirun needs 27 and 4 for each rank here.
[[nodiscard]] inline int descriptors_for_launch(int ranks, int here, int open) {
    constexpr int of_mpirun = 32;
    constexpr int of_each = 4;
    constexpr int of_driver = 24;
    return std::max(of_mpirun + of_each * here, open + of_driver + ranks);
}

/// What a rank needs before it has joined `here` ranks of its machine: MPI's, a socket to the
/// driver and one for each of these ranks, and a few for what it reads and writes.
[[nodiscard]] inline int descriptors_for_rank(int here, int open) {
    constexpr int of_rank = 24;
    return open + of_rank + here;
}

/// What a rank needs that all `ranks` report to: a socket for each, and what it needs itself.
[[nodiscard]] inline int descriptors_for_judge(int ranks, int open) {
    return descriptors_for_rank(ranks, open);
}

/// Throws LaunchError [RT-L17] when this process may have fewer than `needed` open.
inline void require_descriptors(int needed, const std::string& for_what) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= static_cast<rlim_t>(needed)) {
        return;
    }
    const bool may_raise =
        limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= static_cast<rlim_t>(needed);
    throw LaunchError(
        "RT-L17",
        detail::concat("a process may have ", limit.rlim_cur, " files open here (ulimit -n), but ",
                       for_what, " needs ", needed, "; start the program behind `ulimit -n ",
                       std::max(1024, 2 * needed), '`',
                       may_raise ? ""
                                 : detail::concat(", for which the hard limit, ", limit.rlim_max,
                                                  ", must be raised, too")));
}

} // namespace rtrain::launch
