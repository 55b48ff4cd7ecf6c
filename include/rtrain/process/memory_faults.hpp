// SPDX-License-Identifier: Apache-2.0
/// @file
/// SIGSEGV for those in this process that expect faults: each looks at one in turn, and what is
/// nobody's goes to the handler that was there before.
/// Cost tier 0: std only.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>

#include <sys/syscall.h>
#include <unistd.h>

namespace rtrain::process {

/// What somebody who has looked at a fault says: it is another's, the instruction can run again
/// now, or it is an error.
enum class Fault { unknown, resolved, error };

class MemoryFaults {
public:
    /// Does only what a signal handler may do.
    using Look = Fault (*)(const siginfo_t& fault) noexcept;

    /// `look` sees faults from now on. To be called anew whenever some are to come: others set
    /// handlers, too, and take theirs back.
    static void listen(Look look) noexcept {
        for (auto& place : lookers()) {
            Look none = nullptr;
            if (place.compare_exchange_strong(none, look) || none == look) {
                break;
            }
        }
        struct sigaction now {};
        ::sigaction(SIGSEGV, nullptr, &now);
        if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == faulted) {
            return;
        }
        before() = now;
        struct sigaction action {};
        action.sa_sigaction = faulted;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        ::sigaction(SIGSEGV, &action, nullptr);
    }

private:
    using Lookers = std::array<std::atomic<Look>, 4>;
    [[nodiscard]] static Lookers& lookers() noexcept {
        static Lookers all{};
        return all;
    }
    [[nodiscard]] static struct sigaction& before() noexcept {
        static struct sigaction action {};
        return action;
    }
    /// The thread whose fault the handler before has; 0: none.
    [[nodiscard]] static std::atomic<pid_t>& passing() noexcept {
        static std::atomic<pid_t> thread{0};
        return thread;
    }

    static void faulted(int signal, siginfo_t* info, void* context) noexcept {
        const int saved = errno;
        for (const auto& place : lookers()) {
            const Look look = place.load();
            const Fault found = look == nullptr ? Fault::unknown : look(*info);
            if (found == Fault::resolved) {
                errno = saved;
                return;
            }
            if (found == Fault::error) {
                break;
            }
        }
        pass_on(signal, info, context);
        errno = saved;
    }

    /// The handler before may have come behind this one again and call it: then that is the end.
    static void pass_on(int signal, siginfo_t* info, void* context) noexcept {
        const auto self = static_cast<pid_t>(::syscall(SYS_gettid));
        const struct sigaction action = before();
        if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN ||
            passing().load() == self) {
            ::signal(signal, SIG_DFL); // the fault comes again when this returns
            return;
        }
        passing().store(self);
        if ((action.sa_flags & SA_SIGINFO) != 0) {
            action.sa_sigaction(signal, info, context);
        } else {
            action.sa_handler(signal);
        }
        passing().store(0);
    }
};

} // namespace rtrain::process
