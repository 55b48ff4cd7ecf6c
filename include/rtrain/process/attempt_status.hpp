// SPDX-License-Identifier: Apache-2.0
/// @file
/// AttemptStatus: whether the training function may still go on. It may catch what ends its
/// attempt; what the run then becomes does not depend on that. Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace rtrain {

class AttemptStatus {
public:
    /// That of this process.
    [[nodiscard]] static AttemptStatus& current() noexcept {
        static AttemptStatus status;
        return status;
    }

    /// The training function is about to be called. `end_process` does not return.
    void begin(std::function<void()> end_process) {
        const std::lock_guard lock(mutex_);
        end_process_ = std::move(end_process);
        failure_.reset();
        times_left_ = 0;
        is_over_ = false;
        is_under_way_ = true;
    }
    /// It has ended.
    void end() noexcept {
        const std::lock_guard lock(mutex_);
        is_under_way_ = false;
    }

    /// The attempt fails by this error, because ranks may be at different steps from now on. The
    /// first counts. From any thread.
    void fail(const Error& error) {
        const std::lock_guard lock(mutex_);
        if (is_under_way_ && !failure_) {
            failure_ = error;
            is_over_ = true;
        }
    }
    [[nodiscard]] std::optional<Error> failure() const {
        const std::lock_guard lock(mutex_);
        return failure_;
    }

    // Of the training thread.

    /// Whether the function should have ended.
    [[nodiscard]] bool is_over() const noexcept { return is_over_.load(std::memory_order_relaxed); }

    /// The state is saved, and the function is left. One that has stayed twice ends the process.
    void leave() {
        constexpr int chances = 2;
        is_over_ = true;
        if (++times_left_ > chances) {
            end_process_();
        }
    }
    [[nodiscard]] bool was_left() const noexcept { return times_left_ > 0; }

private:
    mutable std::mutex mutex_;
    std::function<void()> end_process_;
    std::optional<Error> failure_;
    bool is_under_way_ = false;
    int times_left_ = 0;
    std::atomic<bool> is_over_{false};
};

/// Throws `error`, which ends the attempt even if the training function catches it.
template <class E>
[[noreturn]] void throw_for_good(const E& error) {
    AttemptStatus::current().fail(error);
    throw error;
}

} // namespace rtrain
