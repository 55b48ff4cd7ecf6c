// SPDX-License-Identifier: Apache-2.0
/// @file
/// CallBoard: the calls of a program in its own process. main() calls and waits; the run's thread
/// passes the call to a driver, or serves it.
#pragma once

#include <rtrain/launch/calls/call.hpp>
#include <rtrain/launch/calls/call_source.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace rtrain::launch {

/// Members are thread-safe.
class CallBoard final : public CallSource {
public:
    using Sender = std::function<void(const Call&)>;

    /// Passes a call on, and waits for its answer. Rethrows what has ended the run.
    [[nodiscard]] CallReply call(const Call& call) {
        std::unique_lock lock(mutex_);
        call_ = call;
        answer_.reset();
        is_waiting_ = true;
        if (sender_) {
            sender_(call);
        }
        changed_.notify_all();
        changed_.wait(lock, [this] { return answer_ || has_ended_; });
        is_waiting_ = false;
        if (answer_) {
            return *std::move(answer_);
        }
        std::rethrow_exception(why_);
    }

    /// The call that main() waits for.
    [[nodiscard]] std::optional<Call> open() {
        const std::lock_guard lock(mutex_);
        return is_waiting_ && !answer_ ? call_ : std::nullopt;
    }

    /// Sets what sends calls to the ranks of a driver; null when it is gone.
    void connect(Sender sender) {
        const std::lock_guard lock(mutex_);
        sender_ = std::move(sender);
    }

    /// The run has ended: calls throw `why`. Returns whether main() is waiting, and will see it.
    bool end(std::exception_ptr why) {
        const std::lock_guard lock(mutex_);
        has_ended_ = true;
        why_ = std::move(why);
        changed_.notify_all();
        return is_waiting_;
    }

    [[nodiscard]] std::optional<Call> wait(std::int64_t number,
                                           std::chrono::milliseconds limit) override {
        std::unique_lock lock(mutex_);
        const auto is_there = [&] { return call_ && call_->number >= number; };
        return changed_.wait_for(lock, limit, is_there) ? call_ : std::nullopt;
    }

    /// Ignores answers to earlier calls: ranks that have started over repeat them.
    void answer(const CallReply& answer) override {
        const std::lock_guard lock(mutex_);
        if (is_waiting_ && call_ && answer.number == call_->number) {
            answer_ = answer;
            changed_.notify_all();
        }
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    Sender sender_;
    std::optional<Call> call_; ///< the newest
    std::optional<CallReply> answer_;
    bool is_waiting_ = false; ///< main(), for the answer
    bool has_ended_ = false;
    std::exception_ptr why_;
};

} // namespace rtrain::launch
