// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long to train between two checkpoints, from what they cost and how often a run fails:
/// CheckpointConfig::mean_time_between_failures_s.
/// Cost tier 0: std only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace rtrain::checkpoint {

/// The time between checkpoints that loses the least, in seconds: sqrt(2 C M), with the cost C of a
/// checkpoint, in seconds that training waits for it, and the mean time M between failures. It
/// balances what checkpoints cost, C / interval, with what a failure loses, half an interval. At
/// most M, as for larger intervals the square root no longer holds.
///
/// J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (9),
/// 1974; J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
/// dumps", Future Generation Computer Systems 22 (3), 2006.
[[nodiscard]] inline double optimal_interval_s(double cost_s, double mean_time_between_failures_s) {
    return std::min(std::sqrt(2 * cost_s * mean_time_between_failures_s),
                    mean_time_between_failures_s);
}

/// Says when the next checkpoint is due. It measures what checkpoints cost, so an interval adapts
/// to the state, the storage and the policy; with one that writes in the background the cost is
/// little more than that of a copy. `Clock` is one of std::chrono's, or a test's.
template <class Clock = std::chrono::steady_clock>
class Interval {
public:
    /// What a checkpoint is taken to cost at first: little, so that the true cost is known soon.
    static constexpr double assumed_cost_s = 0.1;

    /// Time counts from now: what a run goes on from is saved already.
    explicit Interval(double mean_time_between_failures_s)
        : mean_time_between_failures_s_(mean_time_between_failures_s) {}

    /// The mean cost of a checkpoint, in which the newer count more: each moves it by a quarter of
    /// the difference, so that one slow checkpoint is soon forgotten. The second replaces it, as
    /// the first of a process also takes the memory that later ones use again.
    [[nodiscard]] double cost_s() const noexcept { return cost_s_; }
    /// Seconds from one checkpoint to the next.
    [[nodiscard]] double seconds() const {
        return optimal_interval_s(cost_s_, mean_time_between_failures_s_);
    }
    /// Whether so much time has passed since the last one.
    [[nodiscard]] bool is_due() const {
        return std::chrono::duration<double>(Clock::now() - since_).count() >= seconds();
    }

    /// A checkpoint was taken that training has waited for since `begin`; the next interval begins.
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
