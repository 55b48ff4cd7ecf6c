// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether the time of a run is up (stop::MaxTime), and whether all ranks know: they vote as on
/// preemption, and the loop over batches that they have agreed in ends. Cost tier 0: std only.
#pragma once

#include <rtrain/process/agreement.hpp>

#include <chrono>
#include <optional>

namespace rtrain {

/// Of the training thread. Rank 0's clock counts, so other ranks have no moment.
class TimeLimit : public Agreement {
public:
    using Clock = std::chrono::steady_clock;

    /// That of this process.
    [[nodiscard]] static TimeLimit& current() noexcept {
        static TimeLimit limit;
        return limit;
    }

    /// An attempt begins, without a limit.
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
