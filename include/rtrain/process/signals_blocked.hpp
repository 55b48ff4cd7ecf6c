// SPDX-License-Identifier: Apache-2.0
/// @file
/// Threads that get no signal. Cost tier 0: std only.
#pragma once

#include <csignal>

namespace rtrain::launch {

/// While it lives, this thread gets no signal; threads that it starts meanwhile never do, so that
/// the process's signals are for the others.
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
