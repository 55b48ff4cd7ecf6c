// SPDX-License-Identifier: Apache-2.0
/// @file
/// Meter: computes a bar's Progress from samples of a training loop. Does not read a clock. Cost
/// tier 0: std only.
#pragma once

#include <rtrain/console/bar.hpp>
#include <rtrain/process/status/loop_status.hpp>

#include <cmath>
#include <cstdint>

namespace rtrain::console {

class Meter {
public:
    /// Resets, for a run that begins at `now_s` seconds, after `steps`.
    void begin(double now_s, std::int64_t steps) {
        *this = {};
        steps_before_ = steps;
        begin_loop(0, 0, now_s);
    }

    /// Progress of the loop at `now_s`; without a loop, the `steps` of this process. Between two
    /// loops, the state at the end of the first.
    [[nodiscard]] const Progress& look(const LoopStatus::Reading& loop, std::int64_t steps,
                                       double now_s) {
        const bool counts_steps = loop.loop == 0;
        const std::int64_t done = counts_steps ? steps - steps_before_ : loop.done;
        if (loop.loop != loop_) {
            begin_loop(loop.loop, loop.length.first, now_s);
        }
        const bool moved = done != progress_.done;
        if (moved || loop.under_way || counts_steps) {
            progress_.elapsed_s = now_s - begun_s_;
        }
        if (moved) {
            measure(done, now_s);
        }
        progress_.epoch = loop.epoch;
        progress_.epochs = loop.epochs;
        progress_.in_steps = loop.in_steps;
        progress_.done = done;
        progress_.total = counts_steps ? 0 : loop.length.total;
        return progress_;
    }

private:
    void begin_loop(std::int64_t loop, std::int64_t first, double now_s) {
        loop_ = loop;
        begun_s_ = moved_s_ = now_s;
        progress_.done = first;
        progress_.rate = 0;
    }

    /// Exponential average, mostly over the last seconds.
    void measure(std::int64_t done, double now_s) {
        constexpr double seconds = 3;
        const double since_s = now_s - moved_s_;
        if (since_s <= 0) {
            return;
        }
        const double rate = static_cast<double>(done - progress_.done) / since_s;
        const double weight = progress_.rate > 0 ? 1 - std::exp(-since_s / seconds) : 1;
        progress_.rate += weight * (rate - progress_.rate);
        moved_s_ = now_s;
    }

    Progress progress_{};
    std::int64_t steps_before_ = 0;
    std::int64_t loop_ = 0;
    double begun_s_ = 0; ///< start of the loop
    double moved_s_ = 0; ///< last time at which a batch was seen to be done
};

} // namespace rtrain::console
