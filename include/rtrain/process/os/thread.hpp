// SPDX-License-Identifier: Apache-2.0
/// @file
/// Thread: std::jthread whose start fails with advice, and which forked processes ignore.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/os/owner.hpp>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <sys/resource.h>

namespace rtrain::process {

/// The error for a thread that cannot be started.
[[nodiscard]] inline LaunchError no_thread(const std::string& why) {
    rlimit limit{};
    const bool known = ::getrlimit(RLIMIT_NPROC, &limit) == 0;
    return {"RT-L45",
            rtrain::detail::concat(
                "cannot start a thread: ", why, "; this user may have ",
                known && limit.rlim_cur != RLIM_INFINITY
                    ? rtrain::detail::concat(limit.rlim_cur, " processes and threads")
                    : std::string("any number of them"),
                " (ulimit -u), and a container has a pids limit: raise the one that is too low, "
                "or start fewer ranks or threads")};
}

/// Calls `start()`, which starts a thread. Throws LaunchError [RT-L45] if that fails.
template <class Start>
auto starting_thread(Start&& start) {
    try {
        return std::forward<Start>(start)();
    } catch (const std::system_error& error) {
        throw no_thread(error.code().message());
    }
}

/// Throws LaunchError [RT-L45] unless this user can have so many more threads or processes now.
/// Starts them for a moment, because their number cannot be queried.
inline void require_threads(int count, const std::string& for_what) {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, std::size_t{1} << 16);
    std::atomic<bool> may_end{false};
    const auto wait = [](void* until) -> void* {
        static_cast<std::atomic<bool>*>(until)->wait(false);
        return nullptr;
    };
    std::vector<pthread_t> threads;
    threads.reserve(static_cast<std::size_t>(count));
    int error = 0;
    for (pthread_t thread{}; error == 0 && static_cast<int>(threads.size()) < count;) {
        error = ::pthread_create(&thread, &attributes, wait, &may_end);
        if (error == 0) {
            threads.push_back(thread);
        }
    }
    may_end = true;
    may_end.notify_all();
    for (const pthread_t thread : threads) {
        ::pthread_join(thread, nullptr);
    }
    ::pthread_attr_destroy(&attributes);
    if (error != 0) {
        throw no_thread(rtrain::detail::concat(std::strerror(error), ", where ", for_what,
                                               " needs ", count, " at least"));
    }
}

class Thread {
public:
    Thread() = default;
    /// `work` may take a std::stop_token. Throws LaunchError [RT-L45].
    template <class F>
    explicit Thread(F work)
        : thread_(starting_thread(
              [&work] { return std::make_unique<std::jthread>(std::move(work)); })) {}
    Thread(Thread&& other) noexcept = default;
    Thread& operator=(Thread&& other) noexcept {
        end();
        owner_ = other.owner_;
        thread_ = std::move(other.thread_);
        return *this;
    }
    /// Requests a stop, and waits for the thread.
    ~Thread() { end(); }

    /// True if there is a thread, and it belongs to this process.
    [[nodiscard]] bool joinable() const noexcept {
        return thread_ != nullptr && owner_.is_this_process();
    }
    void request_stop() noexcept {
        if (joinable()) {
            thread_->request_stop();
        }
    }
    void join() {
        if (joinable()) {
            thread_->join();
        }
        end();
    }
    void detach() {
        if (joinable()) {
            thread_->detach();
        }
        end();
    }

private:
    /// A forked process has nothing to join; even the thread's memory is gone.
    void end() noexcept {
        if (!owner_.is_this_process()) {
            static_cast<void>(thread_.release());
        }
        thread_.reset();
    }

    Owner owner_;
    std::unique_ptr<std::jthread> thread_;
};

} // namespace rtrain::process
