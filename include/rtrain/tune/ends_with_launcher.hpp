// SPDX-License-Identifier: Apache-2.0
/// @file
/// EndsWithLauncher: no rank of an mpirun searches on without it.
#pragma once

#include <csignal>

#include <sys/prctl.h>

namespace rtrain::detail {

/// Has the kernel end this process when the mpirun has died that started it: ranks that are in no
/// MPI call would go on without.
class EndsWithLauncher {
public:
    EndsWithLauncher() {
        ::prctl(PR_GET_PDEATHSIG, &before_);
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    EndsWithLauncher(const EndsWithLauncher&) = delete;
    EndsWithLauncher& operator=(const EndsWithLauncher&) = delete;
    ~EndsWithLauncher() { ::prctl(PR_SET_PDEATHSIG, before_); }

private:
    int before_ = 0;
};

} // namespace rtrain::detail
