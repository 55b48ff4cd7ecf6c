// SPDX-License-Identifier: Apache-2.0
/// @file
/// DriverAnswers: messages of the driver for which threads of this rank wait.
#pragma once

#include <rtrain/launch/control/decision.hpp>
#include <rtrain/launch/control/events.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

namespace rtrain::launch {

/// Members are thread-safe.
class DriverAnswers {
public:
    void add(const Decision& decision) {
        {
            const std::lock_guard lock(mutex_);
            decisions_.push_back(decision);
        }
        changed_.notify_all();
    }
    void add(const event::Addresses& addresses) {
        {
            const std::lock_guard lock(mutex_);
            addresses_ = addresses;
        }
        changed_.notify_all();
    }
    void add(const event::Call& call) {
        {
            const std::lock_guard lock(mutex_);
            call_ = call;
        }
        changed_.notify_all();
    }

    void add(CallAnswer answer) {
        {
            const std::lock_guard lock(mutex_);
            answers_.push_back(std::move(answer));
        }
        changed_.notify_all();
    }

    /// Waits for the next decision; empty on timeout.
    std::optional<Decision> wait_for_decision(std::chrono::milliseconds limit) {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, limit, [&] { return !decisions_.empty(); })) {
            return std::nullopt;
        }
        Decision decision = std::move(decisions_.front());
        decisions_.pop_front();
        return decision;
    }

    /// Waits until all ranks have sent an Address; empty on timeout.
    std::optional<event::Addresses> wait_for_addresses(std::chrono::milliseconds limit) {
        std::unique_lock lock(mutex_);
        (void)changed_.wait_for(lock, limit, [&] { return addresses_.has_value(); });
        return addresses_;
    }

    /// See CallSource::wait().
    std::optional<event::Call> wait_for_call(std::int64_t number, std::chrono::milliseconds limit) {
        std::unique_lock lock(mutex_);
        const auto is_there = [&] { return call_ && call_->number >= number; };
        return changed_.wait_for(lock, limit, is_there) ? call_ : std::nullopt;
    }

    /// Waits for the next answer to a call; empty after a request to stop.
    std::optional<CallAnswer> wait_for_answer(const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [&] { return !answers_.empty(); })) {
            return std::nullopt;
        }
        CallAnswer answer = std::move(answers_.front());
        answers_.pop_front();
        return answer;
    }

private:
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::deque<Decision> decisions_; ///< not yet returned
    std::optional<event::Addresses> addresses_;
    std::optional<event::Call> call_; ///< the newest
    std::deque<CallAnswer> answers_;  ///< not yet returned
};

} // namespace rtrain::launch
