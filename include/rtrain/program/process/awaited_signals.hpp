// SPDX-License-Identifier: Apache-2.0
/// @file
/// AwaitedSignals: signals that a process receives between other events, without a handler.
#pragma once

#include <array>
#include <chrono>
#include <csignal>

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace rtrain::program {

/// SIGCHLD, and the signals that end a program or speak to it. They must be blocked.
class AwaitedSignals {
public:
    AwaitedSignals() {
        const sigset_t set = all();
        descriptor_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    }
    AwaitedSignals(const AwaitedSignals&) = delete;
    AwaitedSignals& operator=(const AwaitedSignals&) = delete;
    ~AwaitedSignals() { ::close(descriptor_); }

    /// Blocks them in this thread and those that it starts.
    static void block() {
        const sigset_t set = all();
        ::sigprocmask(SIG_BLOCK, &set, nullptr);
    }

    /// The next signal; 0 on timeout, or once `other` is readable.
    [[nodiscard]] int next(int other, std::chrono::milliseconds limit) const {
        std::array<pollfd, 2> awaited{{{descriptor_, POLLIN, 0}, {other, POLLIN, 0}}};
        (void)::poll(awaited.data(), awaited.size(), static_cast<int>(limit.count()));
        signalfd_siginfo received{};
        return ::read(descriptor_, &received, sizeof received) == sizeof received
                   ? static_cast<int>(received.ssi_signo)
                   : 0;
    }

private:
    [[nodiscard]] static sigset_t all() {
        sigset_t set;
        sigemptyset(&set);
        for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
            sigaddset(&set, signal);
        }
        return set;
    }

    int descriptor_ = -1;
};

} // namespace rtrain::program
