// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a rank waits: it spins for a few microseconds, then gives its core away, then sleeps, so
/// that a rank that waits does not take the core that another rank computes on.
#pragma once

#include <chrono>
#include <thread>

#include <sched.h>

namespace rtrain::comm {

class Backoff {
public:
    using Clock = std::chrono::steady_clock;

    /// Call between two looks at the thing waited for.
    void pause() {
        ++rounds_;
        if (rounds_ < spins) {
            return; // MPI_Test itself takes as long as a pause instruction would
        }
        if (rounds_ == spins) {
            started_ = Clock::now();
        }
        if (waited() < yield_for) {
            sched_yield();
        } else {
            std::this_thread::sleep_for(nap);
        }
    }

    /// True once in a while: the time for checks that cost more than a look.
    [[nodiscard]] bool time_to_look_around() const noexcept { return rounds_ % 64 == 63; }

    /// Time since spinning ended.
    [[nodiscard]] Clock::duration waited() const {
        return rounds_ < spins ? Clock::duration::zero() : Clock::now() - started_;
    }

private:
    static constexpr int spins = 200;
    static constexpr std::chrono::milliseconds yield_for{20};
    static constexpr std::chrono::microseconds nap{200};

    int rounds_ = 0;
    Clock::time_point started_;
};

} // namespace rtrain::comm
