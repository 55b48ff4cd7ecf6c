// SPDX-License-Identifier: Apache-2.0
/// @file
/// The time limit of a run (stop::MaxTime). All ranks vote on it as on preemption, and the loop
/// over batches in which they agree ends. Cost tier 0: std only.
#pragma once

#include <rtrain/process/preemption/collective_flag.hpp>

#include <chrono>
#include <optional>

namespace rtrain {

/// Used by the training thread only. Rank 0's clock counts, so other ranks have no deadline.
class TimeLimit : public CollectiveFlag {
public:
    using Clock = std::chrono::steady_clock;

    /// An attempt begins without a limit.
    void reset() noexcept {
        forget();
        moment_.reset();
    }
    void set(Clock::time_point moment) noexcept { moment_ = moment; }
    [[nodiscard]] bool is_over() const noexcept { return moment_ && Clock::now() >= *moment_; }

private:
    std::optional<Clock::time_point> moment_;
};

} // namespace rtrain
