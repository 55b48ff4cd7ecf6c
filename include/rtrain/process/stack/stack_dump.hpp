// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stack of one thread, taken while it hangs: a signal handler (SIGUSR2) in that thread records
/// return addresses, and another thread resolves their names (symbols.hpp).
#pragma once

#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/process/stack/symbols.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rtrain::launch {

namespace control {

class StackWatch {
public:
    [[nodiscard]] static StackWatch& current() noexcept {
        static StackWatch watch;
        return watch;
    }

    void watch_this_thread() {
        const std::lock_guard lock(mutex_);
        std::array<void*, 2> frames{};
        (void)::backtrace(frames.data(), 2); // only its first call allocates memory
        if (thread_ == 0) {
            struct sigaction action {};
            action.sa_sigaction = note;
            action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
            sigemptyset(&action.sa_mask);
            ::sigaction(SIGUSR2, &action, &before_);
        }
        thread_ = static_cast<pid_t>(::syscall(SYS_gettid));
    }

    [[nodiscard]] std::string stack(std::chrono::milliseconds limit) {
        const std::lock_guard lock(mutex_);
        if (thread_ == 0) {
            return "";
        }
        state_.store(State::wanted);
        if (::syscall(SYS_tgkill, ::getpid(), thread_, SIGUSR2) != 0) {
            state_.store(State::idle);
            return ""; // the thread has ended
        }
        const auto deadline = std::chrono::steady_clock::now() + limit;
        while (state_.load() != State::noted) {
            auto expected = State::wanted;
            if (std::chrono::steady_clock::now() >= deadline &&
                state_.compare_exchange_strong(expected, State::idle)) {
                return "";
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        std::string text = describe();
        state_.store(State::idle);
        return text;
    }

private:
    enum class State : unsigned char { idle, wanted, noting, noted };

    static constexpr int max_depth = 128;
    /// The handler's own frame, and the kernel's that called it.
    static constexpr int own_frames = 2;

    static void note(int signal, siginfo_t* info, void* context) {
        const int saved = errno;
        StackWatch& self = current();
        auto expected = State::wanted;
        if (static_cast<pid_t>(::syscall(SYS_gettid)) == self.thread_ &&
            self.state_.compare_exchange_strong(expected, State::noting)) {
            self.depth_ = ::backtrace(self.frames_.data(), max_depth);
            self.state_.store(State::noted);
        } else if ((self.before_.sa_flags & SA_SIGINFO) != 0) { // not sent by this class
            self.before_.sa_sigaction(signal, info, context);
        } else if (self.before_.sa_handler != SIG_DFL && self.before_.sa_handler != SIG_IGN) {
            self.before_.sa_handler(signal);
        }
        errno = saved;
    }

    /// A return address is after the call, maybe already in another function.
    [[nodiscard]] std::string describe() const {
        std::vector<std::uintptr_t> addresses;
        for (int i = own_frames; i < depth_; ++i) {
            addresses.push_back(
                reinterpret_cast<std::uintptr_t>(frames_[static_cast<std::size_t>(i)]) -
                (i > own_frames ? 1 : 0));
        }
        auto text = detail::strict(std::ostringstream());
        std::size_t number = 0;
        for (const std::string& frame : symbolizer(addresses)) {
            text << '#' << number++ << ' ' << frame << '\n';
        }
        return text.str();
    }

    std::mutex mutex_;
    pid_t thread_ = 0; ///< 0: none
    struct sigaction before_ {};
    std::atomic<State> state_{State::idle};
    std::array<void*, max_depth> frames_{};
    int depth_ = 0;
};

} // namespace control

/// Makes the calling thread the one whose stack can be taken, replacing any previous one. Uses
/// SIGUSR2; signals not sent for a stack go to the previous handler.
inline void watch_this_thread() {
    control::StackWatch::current().watch_this_thread();
}

/// The stack of that thread, a line for each call, innermost first; for another thread. Empty if
/// there is none, or if it does not react within `limit`, because it is stopped or blocks SIGUSR2.
[[nodiscard]] inline std::string stack_of_watched_thread(std::chrono::milliseconds limit) {
    return control::StackWatch::current().stack(limit);
}

} // namespace rtrain::launch
