// SPDX-License-Identifier: Apache-2.0
/// @file
/// Thread: std::jthread whose start fails with advice, and which a forked process leaves alone.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/owner.hpp>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <sys/resource.h>

namespace rtrain::process {

/// Calls `start()`, which starts a thread. Throws LaunchError [RT-L45] when the system gives none.
template <class Start>
auto starting_thread(Start&& start) {
    try {
        return std::forward<Start>(start)();
    } catch (const std::system_error& error) {
        rlimit limit{};
        const bool known = ::getrlimit(RLIMIT_NPROC, &limit) == 0;
        throw LaunchError(
            "RT-L45",
            rtrain::detail::concat(
                "cannot start a thread: ", error.code().message(), "; this user may have ",
                known && limit.rlim_cur != RLIM_INFINITY
                    ? rtrain::detail::concat(limit.rlim_cur, " processes and threads")
                    : std::string("any number of them"),
                " (ulimit -u), a container as many as its pids limit says: raise what is too low, "
                "or start fewer ranks or threads"));
    }
}

class Thread {
public:
    Thread() = default;
    /// `work` may take a std::stop_token. Throws LaunchError [RT-L45].
    template <class F>
    explicit Thread(F work)
        : thread_(starting_thread([&work] { return std::jthread(std::move(work)); })) {}
    Thread(Thread&& other) noexcept = default;
    Thread& operator=(Thread&& other) noexcept {
        end();
        owner_ = other.owner_;
        thread_ = std::move(other.thread_);
        return *this;
    }
    /// Requests a stop, and waits for the thread.
    ~Thread() { end(); }

    /// Whether there is a thread, and it is of this process.
    [[nodiscard]] bool joinable() const noexcept {
        return thread_.joinable() && owner_.is_this_process();
    }
    void request_stop() noexcept {
        if (joinable()) {
            thread_.request_stop();
        }
    }
    void join() {
        if (joinable()) {
            thread_.join();
        }
    }
    void detach() {
        if (thread_.joinable()) {
            thread_.detach();
        }
    }

private:
    void end() noexcept {
        if (thread_.joinable() && !owner_.is_this_process()) {
            thread_.detach();
        }
        thread_ = std::jthread(); // joins
    }

    Owner owner_;
    std::jthread thread_;
};

} // namespace rtrain::process
