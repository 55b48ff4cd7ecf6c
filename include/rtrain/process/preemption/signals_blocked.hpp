// SPDX-License-Identifier: Apache-2.0
/// @file
/// Threads that receive no signals. Cost tier 0: std only.
#pragma once

#include <csignal>

namespace rtrain::launch {

/// While it exists, this thread receives no signals, and threads that it starts never do, so that
/// other threads receive the process's signals.
class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_{};
};

} // namespace rtrain::launch
