// SPDX-License-Identifier: Apache-2.0
/// @file
/// Training time between two checkpoints, from their cost and the frequency of failures:
/// CheckpointConfig::mean_time_between_failures_s.
/// Cost tier 0: std only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace rtrain::checkpoint {

/// Returns the time between checkpoints that loses the least, in seconds: sqrt(2 C M), with the
/// cost C of a checkpoint, in seconds that training waits for it, and the mean time M between
/// failures. It balances the cost of checkpoints, C / interval, with the loss in a failure, half an
/// interval. At most M, as for larger intervals the square root no longer holds.
///
/// J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (9),
/// 1974; J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
/// dumps", Future Generation Computer Systems 22 (3), 2006.
[[nodiscard]] inline double optimal_interval_s(double cost_s, double mean_time_between_failures_s) {
    return std::min(std::sqrt(2 * cost_s * mean_time_between_failures_s),
                    mean_time_between_failures_s);
}

/// Determines when the next checkpoint is due. It measures the cost of checkpoints, so an interval
/// adapts to the state, the storage and the policy; with one that writes in the background the cost
/// is little more than that of a copy. `Clock` is one of std::chrono's, or a test's.
template <class Clock = std::chrono::steady_clock>
class Interval {
public:
    /// Initial assumption of the cost of a checkpoint: low, so that the true cost is measured soon.
    static constexpr double assumed_cost_s = 0.1;

    /// Time counts from construction: the state that a run resumes from is already saved.
    explicit Interval(double mean_time_between_failures_s)
        : mean_time_between_failures_s_(mean_time_between_failures_s) {}

    /// The mean cost of a checkpoint, weighted towards newer ones: each moves it by a quarter of
    /// the difference, so that one slow checkpoint is soon forgotten. The second replaces the
    /// first, which also allocates memory that later ones reuse.
    [[nodiscard]] double cost_s() const noexcept { return cost_s_; }
    /// Seconds from one checkpoint to the next.
    [[nodiscard]] double seconds() const {
        return optimal_interval_s(cost_s_, mean_time_between_failures_s_);
    }
    /// True if that much time has passed since the last checkpoint.
    [[nodiscard]] bool is_due() const {
        return std::chrono::duration<double>(Clock::now() - since_).count() >= seconds();
    }

    /// Records a checkpoint that training has waited for since `begin`; the next interval begins.
    void saved(typename Clock::time_point begin) {
        since_ = Clock::now();
        const double cost = std::chrono::duration<double>(since_ - begin).count();
        cost_s_ = ++checkpoints_ == 2 ? cost : cost_s_ + (cost - cost_s_) / 4;
    }

private:
    double mean_time_between_failures_s_;
    typename Clock::time_point since_ = Clock::now();
    double cost_s_ = assumed_cost_s;
    std::int64_t checkpoints_ = 0; ///< of this process
};

} // namespace rtrain::checkpoint
