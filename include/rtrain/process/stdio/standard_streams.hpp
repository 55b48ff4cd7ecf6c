// SPDX-License-Identifier: Apache-2.0
/// @file
/// Standard input, output and error of this process as descriptors.
/// Cost tier 0: std only.
#pragma once

#include <array>

#include <fcntl.h>
#include <poll.h>

namespace rtrain::process {

/// Opens /dev/null for each closed one: otherwise the next file or socket would become it.
inline void open_standard_streams() noexcept {
    for (const int number : {0, 1, 2}) {
        if (::fcntl(number, F_GETFD) < 0) { // the lowest that is free, so open() returns it
            (void)::open("/dev/null", number == 0 ? O_RDONLY : O_WRONLY);
        }
    }
}

/// Before main(), so that no library of the program is faster.
inline const bool standard_streams_are_open = (open_standard_streams(), true);

/// True if printing would wait for a reader of standard output or standard error, or of the given
/// descriptors. Safe in a signal handler.
[[nodiscard]] inline bool is_output_blocked(int out = 1, int err = 2) noexcept {
    std::array<pollfd, 2> streams{{{out, POLLOUT, 0}, {err, POLLOUT, 0}}};
    return ::poll(streams.data(), streams.size(), 0) >= 0 &&
           (streams[0].revents == 0 || streams[1].revents == 0);
}

} // namespace rtrain::process
