// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a rank waits: it spins for a few microseconds, then gives its core away, then sleeps, so
/// that a rank that waits does not take the core that another rank computes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include <sched.h>

namespace rtrain::comm {

class Backoff {
public:
    using Clock = std::chrono::steady_clock;

    /// `crowded`: there are more ranks than cores, so whom this rank waits for may need its core.
    explicit Backoff(bool crowded = false) : spins_(crowded ? 1 : 200) {}

    /// Call between two looks at the thing waited for.
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

    /// True once in a while: the time for checks that cost more than a look.
    [[nodiscard]] bool time_to_look_around() const noexcept {
        return rounds_ > spins_ && rounds_ % 64 == 0;
    }

    /// Time since spinning ended.
    [[nodiscard]] Clock::duration waited() const {
        return rounds_ < spins_ ? Clock::duration::zero() : Clock::now() - started_;
    }

private:
    /// Tells the core that this is a loop of waiting.
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
