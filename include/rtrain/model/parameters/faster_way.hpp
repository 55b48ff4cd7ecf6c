// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chooses the faster of two ways to do the same, by trying both.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

namespace rtrain::detail {

/// Alternates between the ways, then keeps the one with the least time.
class FasterWay {
public:
    using Clock = std::chrono::steady_clock;

    /// The way to take next: 0 or 1; 0 where they take equally long.
    [[nodiscard]] std::size_t way() const noexcept {
        return rounds_ < trials ? rounds_ % 2 : (least_[1] < least_[0] ? 1 : 0);
    }
    void begin() {
        if (rounds_ < trials) {
            begin_ = Clock::now();
        }
    }
    void end() {
        if (rounds_ < trials && begin_ != Clock::time_point()) {
            count(Clock::now() - begin_);
            begin_ = {};
        }
    }
    /// Adds the time of a round.
    void count(Clock::duration time) {
        if (rounds_ >= warm_up) {
            least_[way()] = std::min(least_[way()], time);
        }
        ++rounds_;
    }

private:
    static constexpr std::size_t warm_up = 4;
    static constexpr std::size_t trials = warm_up + 24;

    std::size_t rounds_ = 0;
    std::array<Clock::duration, 2> least_ = {Clock::duration::max(), Clock::duration::max()};
    Clock::time_point begin_;
};

} // namespace rtrain::detail
