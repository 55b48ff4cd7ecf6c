// SPDX-License-Identifier: Apache-2.0
/// @file
/// Waiting: a rank spins for a few microseconds, then yields its core, then sleeps, so that it does
/// not occupy the core that another rank computes on.
#pragma once

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
        if (waited() < yield_for) {
            sched_yield();
        } else {
            std::this_thread::sleep_for(nap);
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

    static constexpr std::chrono::milliseconds yield_for{20};
    static constexpr std::chrono::microseconds nap{200};

    int spins_;
    std::int64_t rounds_ = 0;
    Clock::time_point started_;
};

} // namespace rtrain::comm
