// SPDX-License-Identifier: Apache-2.0
/// @file
/// ParentDeathSignal: ends the ranks of a search when their mpirun dies.
#pragma once

#include <csignal>

#include <sys/prctl.h>

namespace rtrain::detail {

/// The kernel ends this process when the mpirun that started it has died; ranks outside MPI calls
/// would otherwise continue.
class ParentDeathSignal {
public:
    ParentDeathSignal() {
        ::prctl(PR_GET_PDEATHSIG, &before_);
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    ParentDeathSignal(const ParentDeathSignal&) = delete;
    ParentDeathSignal& operator=(const ParentDeathSignal&) = delete;
    ~ParentDeathSignal() { ::prctl(PR_SET_PDEATHSIG, before_); }

private:
    int before_ = 0;
};

} // namespace rtrain::detail
