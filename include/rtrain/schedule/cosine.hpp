// SPDX-License-Identifier: Apache-2.0
/// @file
/// Schedules with a cosine: annealing, with restarts, and warmup, stable, decay. Cost tier 0: std
/// only.
#pragma once

#include <rtrain/schedule/chain.hpp>
#include <rtrain/schedule/check.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

namespace rtrain::schedule {

/// torch's CosineAnnealingLR, from step 0 to step T_max (`steps`). Past that, where torch's rate
/// rises again, it throws.
struct Cosine {
    std::int64_t steps = internal::unset; ///< at least 1
    double min = 0;                       ///< multiplier of step `steps`, at most 1

    /// Returns the multiplier of a step. Throws ConfigError [RT-C80, RT-C81].
    double operator()(std::int64_t step) const {
        internal::require_steps("Cosine", "steps", steps, 1);
        internal::require_between("Cosine", "min", min, 0, 1);
        internal::require_step("Cosine", step, steps);
        return internal::cosine(1, min, internal::ratio(step, steps));
    }
    /// Returns the number of steps.
    [[nodiscard]] constexpr std::int64_t length() const { return steps; }
    /// Adds a schedule that starts at a step, by default at step `steps`.
    template <Schedule Next>
    [[nodiscard]] constexpr auto then(Next next,
                                      std::optional<std::int64_t> at = std::nullopt) const {
        return internal::chain(*this, std::move(next), at.value_or(steps));
    }
};

/// torch's CosineAnnealingWarmRestarts: cosines that start again at 1.
struct CosineRestarts {
    std::int64_t steps = internal::unset; ///< of the first cosine, at least 1; torch's T_0
    std::int64_t multiplier = 1; ///< each cosine is that many times as long as the last; T_mult
    double min = 0;              ///< multiplier that each cosine approaches, at most 1

    /// Returns the multiplier of a step. Throws ConfigError [RT-C80, RT-C81].
    double operator()(std::int64_t step) const {
        internal::require_steps("CosineRestarts", "steps", steps, 1);
        internal::require_steps("CosineRestarts", "multiplier", multiplier, 1);
        internal::require_between("CosineRestarts", "min", min, 0, 1);
        internal::require_step("CosineRestarts", step);
        std::int64_t length = steps;
        if (multiplier == 1) {
            step %= steps;
        }
        while (step >= length) {
            step -= length;
            length = length > forever / multiplier ? forever : length * multiplier;
        }
        return internal::cosine(1, min, internal::ratio(step, length));
    }
    /// Adds a schedule that starts at a step.
    template <Schedule Next>
    [[nodiscard]] constexpr auto then(Next next, std::int64_t at) const {
        return internal::chain(*this, std::move(next), at);
    }
};

/// The last phase of WarmupStableDecay; `x` is the part of it that is over.
enum class Decay : unsigned char {
    linear,        ///< 1 - x
    cosine,        ///< (1 + cos(pi x)) / 2
    one_minus_sqrt ///< 1 - sqrt(x)
};

/// A line from 0 to 1, a plateau at 1, and a decay to `min`: get_wsd_schedule of Hugging Face's
/// transformers, whose `min` also lifts the warmup.
struct WarmupStableDecay {
    std::int64_t warmup = internal::unset; ///< steps, at least 0
    std::int64_t stable = internal::unset; ///< steps, at least 0
    std::int64_t decay = internal::unset;  ///< steps, at least 1
    Decay decay_type = Decay::linear;      ///< shape of the decay
    double min = 0;                        ///< multiplier of the last step, at most 1

    /// Returns the multiplier of a step. Throws ConfigError [RT-C80, RT-C81].
    double operator()(std::int64_t step) const {
        const std::int64_t end = length();
        internal::require_between("WarmupStableDecay", "min", min, 0, 1);
        internal::require_step("WarmupStableDecay", step, end);
        if (step < warmup) {
            return internal::ratio(step, warmup);
        }
        if (step - warmup < stable) {
            return 1;
        }
        const double over = internal::ratio(step - warmup - stable, decay);
        switch (decay_type) {
        case Decay::cosine:
            return internal::cosine(1, min, over);
        case Decay::one_minus_sqrt:
            return min + (1 - min) * (1 - std::sqrt(over));
        case Decay::linear:
            break;
        }
        return min + (1 - min) * (1 - over);
    }
    /// Returns the number of steps of all three phases. Throws ConfigError [RT-C80].
    [[nodiscard]] constexpr std::int64_t length() const {
        internal::require_steps("WarmupStableDecay", "warmup", warmup, 0);
        internal::require_steps("WarmupStableDecay", "stable", stable, 0);
        internal::require_steps("WarmupStableDecay", "decay", decay, 1);
        return warmup > forever - stable || warmup + stable > forever - decay
                   ? forever
                   : warmup + stable + decay;
    }
    /// Adds a schedule that starts at a step, by default after the decay.
    template <Schedule Next>
    [[nodiscard]] constexpr auto then(Next next,
                                      std::optional<std::int64_t> at = std::nullopt) const {
        return internal::chain(*this, std::move(next), at ? *at : length());
    }
};

} // namespace rtrain::schedule
