// SPDX-License-Identifier: Apache-2.0
/// @file
/// The preemption notice of this process: see train/preemption.hpp.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/text/duration.hpp>
#include <rtrain/process/preemption/collective_flag.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace rtrain {

/// Records whether this process was preempted, and whether all ranks have agreed on it.
class PreemptionNotice : public CollectiveFlag {
public:
    using Clock = std::chrono::steady_clock;

    /// Thread-safe, and safe in signal handlers. The first call counts.
    void give(double grace_s) noexcept {
        std::int64_t none = 0;
        const auto end = Clock::now().time_since_epoch() + detail::duration_of(grace_s);
        deadline_.compare_exchange_strong(none, end.count());
    }
    [[nodiscard]] bool given() const noexcept { return deadline_.load() != 0; }
    /// Time until the deadline; only if given().
    [[nodiscard]] double seconds_left() const noexcept {
        const auto deadline = std::chrono::nanoseconds(deadline_.load());
        return std::chrono::duration<double>(deadline - Clock::now().time_since_epoch()).count();
    }

    /// Call after a run was preempted. A run that ends otherwise leaves the notice to the next.
    void reset() noexcept { deadline_ = 0; }

    // Used by the training thread only.

    /// Enables votes of the ranks: not for models that are trained without a trainer. Each attempt
    /// begins without votes of the previous one.
    void listen(bool on) noexcept {
        listening_ = on;
        forget();
        votes_.reset();
    }
    [[nodiscard]] bool is_listened_to() const noexcept { return listening_; }

    /// Schedules the votes: at the same pass on all ranks, because each vote decides when the next
    /// is.
    class Votes {
    public:
        /// Counts a pass; true if its ranks vote.
        [[nodiscard]] bool tick() noexcept { return --until_next_ <= 0; }
        [[nodiscard]] std::int64_t step_us() const {
            const auto time = Clock::now() - last_;
            return std::chrono::duration_cast<std::chrono::microseconds>(time).count() / interval_;
        }
        /// `step_us`: the slowest rank's time between two passes.
        void schedule(std::int64_t step_us) {
            constexpr std::int64_t pause_us = 200'000;
            constexpr std::int64_t longest = 10'000;
            interval_ =
                std::clamp<std::int64_t>(pause_us / std::max<std::int64_t>(1, step_us), 1, longest);
            until_next_ = interval_;
            last_ = Clock::now();
        }
        void reset() noexcept { *this = Votes(); }

    private:
        std::int64_t interval_ = 1;
        std::int64_t until_next_ = 1;
        Clock::time_point last_ = Clock::now();
    };
    [[nodiscard]] Votes& votes() noexcept { return votes_; }

private:
    std::atomic<std::int64_t> deadline_{0}; ///< nanoseconds of the steady clock; 0: no notice
    bool listening_ = false;
    Votes votes_;
};

} // namespace rtrain
