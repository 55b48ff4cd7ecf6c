// SPDX-License-Identifier: Apache-2.0
/// @file
/// AttemptStatus: whether the training function may still continue. It may catch the exception that
/// ends its attempt; the run's outcome does not depend on that. Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace rtrain {

class AttemptStatus {
public:
    /// Call before the training function. `end_process` does not return.
    void begin(std::function<void()> end_process) {
        const std::lock_guard lock(mutex_);
        end_process_ = std::move(end_process);
        failure_.reset();
        times_left_ = 0;
        is_over_ = false;
        is_under_way_ = true;
    }
    /// Call after the training function.
    void end() noexcept {
        const std::lock_guard lock(mutex_);
        is_under_way_ = false;
    }

    /// Fails the attempt with this failure, because ranks may be at different steps from now on.
    /// The first call counts. Thread-safe.
    void fail(Failure failure) {
        const std::lock_guard lock(mutex_);
        if (is_under_way_ && !failure_) {
            failure_ = std::move(failure);
            is_over_ = true;
        }
    }
    [[nodiscard]] std::optional<Failure> failure() const {
        const std::lock_guard lock(mutex_);
        return failure_;
    }

    /// `report` sends the driver the error that ends this process.
    void set_last_words(std::function<void(const std::exception&)> report) {
        const std::lock_guard lock(mutex_);
        last_words_ = std::move(report);
    }
    /// Reports the error that ends this process now. Thread-safe.
    void report_last_words(const std::exception& error) {
        const std::lock_guard lock(mutex_);
        if (is_under_way_ && last_words_) {
            last_words_(error);
        }
    }

    // Used by the training thread only.

    /// True if the function should have ended.
    [[nodiscard]] bool is_over() const noexcept { return is_over_.load(std::memory_order_relaxed); }

    /// The state is saved, and the function must end. Ends the process at the third call.
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
    std::function<void(const std::exception&)> last_words_;
    std::optional<Failure> failure_;
    bool is_under_way_ = false;
    int times_left_ = 0;
    std::atomic<bool> is_over_{false};
};

} // namespace rtrain
