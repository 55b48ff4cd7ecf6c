// SPDX-License-Identifier: Apache-2.0
/// @file
/// The longest recent pause between signs of life: what is normal for this run. Cost tier 0: std
/// only.
#pragma once

#include <chrono>
#include <deque>
#include <utility>

namespace rtrain::launch {

[[nodiscard]] inline double seconds(std::chrono::steady_clock::duration time) {
    return std::chrono::duration<double>(time).count();
}

class LongestPause {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::minutes recent{30};

    void add(double pause_s, Clock::time_point now) {
        while (!pauses_.empty() && pauses_.back().second <= pause_s) {
            pauses_.pop_back();
        }
        pauses_.emplace_back(now, pause_s);
        forget(now);
    }

    [[nodiscard]] double seconds(Clock::time_point now) {
        forget(now);
        return pauses_.empty() ? 0 : pauses_.front().second;
    }

private:
    void forget(Clock::time_point now) {
        while (!pauses_.empty() && now - pauses_.front().first > recent) {
            pauses_.pop_front();
        }
    }

    std::deque<std::pair<Clock::time_point, double>> pauses_; ///< each longer than those after it
};

} // namespace rtrain::launch
