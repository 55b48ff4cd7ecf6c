// SPDX-License-Identifier: Apache-2.0
/// @file
/// EndsWithLauncher: ends the ranks of a search when their mpirun dies.
#pragma once

#include <csignal>

#include <sys/prctl.h>

namespace rtrain::detail {

/// The kernel ends this process when the mpirun that started it has died; ranks outside MPI calls
/// would otherwise continue.
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
