// SPDX-License-Identifier: Apache-2.0
/// @file
/// BackgroundCalls: a thread that runs queued calls one after the other.
#pragma once

#include <rtrain/process/os/thread.hpp>
#include <rtrain/process/preemption/signals_blocked.hpp>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

namespace rtrain::track {

class BackgroundCalls {
public:
    using Call = std::function<void()>;

    BackgroundCalls() {
        const launch::SignalsBlocked blocked;
        thread_ = rtrain::process::Thread([this] { work(); });
    }
    BackgroundCalls(const BackgroundCalls&) = delete;
    BackgroundCalls& operator=(const BackgroundCalls&) = delete;
    /// Waits for all queued calls.
    ~BackgroundCalls() {
        {
            const std::scoped_lock lock(mutex_);
            ends_ = true;
        }
        changed_.notify_one();
    }

    /// `call` must not throw.
    void add(Call call) {
        {
            const std::scoped_lock lock(mutex_);
            calls_.push_back(std::move(call));
        }
        changed_.notify_one();
    }
    /// Number of calls that have not started.
    [[nodiscard]] std::size_t waiting() const {
        const std::scoped_lock lock(mutex_);
        return calls_.size();
    }

private:
    void work() {
        for (;;) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return ends_ || !calls_.empty(); });
            if (calls_.empty()) {
                return;
            }
            const Call call = std::move(calls_.front());
            calls_.pop_front();
            lock.unlock();
            call();
        }
    }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Call> calls_;
    bool ends_ = false;
    rtrain::process::Thread thread_; ///< last: it uses the others
};

} // namespace rtrain::track
