// SPDX-License-Identifier: Apache-2.0
/// @file
/// Discards standard output for a while. Cost tier 0: std only.
#pragma once

#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace rtrain::process {

class MutedStdout {
public:
    /// Mutes until end(). Does nothing if /dev/null cannot be opened.
    void begin() {
        const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (nowhere >= 0) {
            kept_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
            ::dup2(nowhere, STDOUT_FILENO);
        }
        ::close(nowhere);
    }

    void end() {
        if (kept_ >= 0) {
            std::fflush(stdout);
            ::dup2(kept_, STDOUT_FILENO);
            ::close(std::exchange(kept_, -1));
        }
    }

private:
    int kept_ = -1; ///< the original descriptor
};

} // namespace rtrain::process
