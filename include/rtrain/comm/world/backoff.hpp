// SPDX-License-Identifier: Apache-2.0
/// @file
/// Waiting: a rank spins for a few microseconds, then yields its core, then sleeps, so that it does
/// not occupy the core that another rank computes on. A sleep ends late, by 60 us or, on a busy
/// machine, milliseconds: a rank yields until that delays the wait by one percent at most.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include <sched.h>

namespace rtrain::comm {

class Backoff {
public:
    using Clock = std::chrono::steady_clock;

    /// `crowded`: there are more ranks than cores, so the awaited rank may need this core.
    explicit Backoff(bool crowded = false) : spins_(crowded ? 1 : 200) {}

    /// Call between two polls of the awaited condition.
    void pause() {
        ++rounds_;
        if (rounds_ < spins_) {
            relax();
            return;
        }
        if (rounds_ == spins_) {
            started_ = Clock::now();
        }
        if (waited() / 100 < nap + lateness) {
            sched_yield();
        } else {
            sleep();
        }
    }

    /// True at intervals: the time for checks that cost more than a poll.
    [[nodiscard]] bool time_to_look_around() const noexcept {
        return rounds_ > spins_ && rounds_ % 64 == 0;
    }

    /// Time since spinning ended.
    [[nodiscard]] Clock::duration waited() const {
        return rounds_ < spins_ ? Clock::duration::zero() : Clock::now() - started_;
    }

private:
    /// Hints to the core that this is a spin loop.
    static void relax() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    static constexpr std::chrono::microseconds nap{200};

    static void sleep() {
        const auto begun = Clock::now();
        std::this_thread::sleep_for(nap);
        const Clock::duration late = Clock::now() - begun - nap;
        constexpr Clock::duration longest = std::chrono::milliseconds(5);
        lateness = (3 * lateness + std::min(late, longest)) / 4;
    }

    /// A moving average of how late sleeps of this thread end.
    static inline thread_local Clock::duration lateness = std::chrono::microseconds(60);

    int spins_;
    std::int64_t rounds_ = 0;
    Clock::time_point started_;
};

} // namespace rtrain::comm
