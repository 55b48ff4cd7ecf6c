// SPDX-License-Identifier: Apache-2.0
/// @file
/// Schedules that also move the momentum: one cycle, and many. Cost tier 0: std only.
#pragma once

#include <rtrain/schedule/chain.hpp>
#include <rtrain/schedule/check.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace rtrain::schedule {

/// The shape of the phases of OneCycle.
enum class Anneal : unsigned char {
    cos,   ///< half a cosine
    linear ///< a line
};

/// torch's OneCycleLR. The optimizer's initial learning rate is torch's max_lr: the multiplier
/// rises from 1 / div_factor to 1, and falls to 1 / (div_factor * final_div_factor).
struct OneCycle {
    std::int64_t steps = internal::unset; ///< of the cycle, at least 1; torch's total_steps
    double pct_start = 0.3;               ///< part of the steps in which the rate rises
    Anneal anneal_strategy = Anneal::cos; ///< shape of each phase
    bool cycle_momentum = true;           ///< moves the momentum in the other direction
    double base_momentum = 0.85;          ///< momentum at the highest rate
    double max_momentum = 0.95;           ///< momentum at the lowest rates
    double div_factor = 25;               ///< at least 1
    double final_div_factor = 1e4;        ///< at least 1
    bool three_phase = false;             ///< falls to 1 / div_factor as fast as it has risen

    /// Returns the multiplier of a step. Throws ConfigError [RT-C80, RT-C81].
    double operator()(std::int64_t step) const {
        check();
        const auto [number, part] = phase(step);
        const double start = 1 / div_factor;
        const double end = start / final_div_factor;
        return number == 0                  ? anneal(start, 1, part)
               : number == 1 && three_phase ? anneal(1, start, part)
               : three_phase                ? anneal(start, end, part)
                                            : anneal(1, end, part);
    }
    /// Returns the momentum of a step. Throws ConfigError [RT-C80, RT-C81].
    [[nodiscard]] std::optional<double> momentum(std::int64_t step) const {
        check();
        const auto [number, part] = phase(step);
        if (!cycle_momentum) {
            return std::nullopt;
        }
        return number == 0   ? anneal(max_momentum, base_momentum, part)
               : number == 1 ? anneal(base_momentum, max_momentum, part)
                             : max_momentum;
    }
    /// True if it sets the momentum.
    [[nodiscard]] constexpr bool sets_momentum() const { return cycle_momentum; }
    /// Returns the number of steps.
    [[nodiscard]] constexpr std::int64_t length() const { return steps; }
    /// Adds a schedule that starts at a step, by default at step `steps`.
    template <Schedule Next>
    [[nodiscard]] constexpr auto then(Next next,
                                      std::optional<std::int64_t> at = std::nullopt) const {
        return internal::chain(*this, std::move(next), at.value_or(steps));
    }

private:
    constexpr void check() const {
        internal::require_steps("OneCycle", "steps", steps, 1);
        internal::require_between("OneCycle",
                                  three_phase ? "pct_start with three_phase" : "pct_start",
                                  pct_start, 0, three_phase ? 0.5 : 1);
        internal::require_between("OneCycle", "div_factor", div_factor, 1);
        internal::require_between("OneCycle", "final_div_factor", final_div_factor, 1);
        internal::require_between("OneCycle", "max_momentum", max_momentum, 0, 1);
        internal::require_between("OneCycle", "base_momentum", base_momentum, 0, max_momentum);
    }
    struct Phase {
        int number;
        double part; ///< of the phase, from 0 to 1
    };
    /// The phases end one step before their part of the steps is over, as in torch.
    [[nodiscard]] constexpr Phase phase(std::int64_t step) const {
        internal::require_step("OneCycle", step, steps);
        const auto total = static_cast<double>(steps);
        const double at = static_cast<double>(std::min(step, steps - 1)); // torch goes beyond
        const double first = pct_start * total - 1;
        const double second = 2 * pct_start * total - 2;
        if (at <= first) {
            return {0, part_of(at, 0, first)};
        }
        if (three_phase && at <= second) {
            return {1, part_of(at, first, second)};
        }
        return {three_phase ? 2 : 1, part_of(at, three_phase ? second : first, total - 1)};
    }
    [[nodiscard]] static constexpr double part_of(double at, double start, double end) {
        return end > start ? (at - start) / (end - start) : 1;
    }
    [[nodiscard]] double anneal(double start, double end, double part) const {
        return anneal_strategy == Anneal::cos ? internal::cosine(start, end, part)
                                              : (end - start) * part + start;
    }
};

/// The way in which the cycles of Cyclic shrink.
enum class CyclicMode : unsigned char {
    triangular,  ///< not at all
    triangular2, ///< each is half as high as the one before
    exp_range    ///< by `gamma` every step
};

/// torch's CyclicLR: a line from `base` to `max` and back, again and again. To have torch's values,
/// give the optimizer max_lr, and `base` base_lr / max_lr.
struct Cyclic {
    double base = 0.1;                        ///< lowest multiplier, at most `max`
    double max = 1;                           ///< highest multiplier
    std::int64_t step_size_up = 2000;         ///< steps from `base` to `max`, at least 1
    std::int64_t step_size_down = 0;          ///< steps back; 0: as many
    CyclicMode mode = CyclicMode::triangular; ///< how the cycles shrink
    double gamma = 1;                         ///< for exp_range; at least 0
    bool cycle_momentum = true;               ///< moves the momentum in the other direction
    double base_momentum = 0.8;               ///< momentum at the highest rate
    double max_momentum = 0.9;                ///< momentum at the lowest rate

    /// Returns the multiplier of a step. Throws ConfigError [RT-C80, RT-C81].
    double operator()(std::int64_t step) const { return base + (max - base) * height(step); }
    /// Returns the momentum of a step. Throws ConfigError [RT-C80, RT-C81].
    [[nodiscard]] std::optional<double> momentum(std::int64_t step) const {
        const double at = height(step);
        if (!cycle_momentum) {
            return std::nullopt;
        }
        return max_momentum - (max_momentum - base_momentum) * at;
    }
    /// True if it sets the momentum.
    [[nodiscard]] constexpr bool sets_momentum() const { return cycle_momentum; }
    /// Adds a schedule that starts at a step.
    template <Schedule Next>
    [[nodiscard]] constexpr auto then(Next next, std::int64_t at) const {
        return internal::chain(*this, std::move(next), at);
    }

private:
    constexpr void check() const {
        internal::require_between("Cyclic", "max", max, 0);
        internal::require_between("Cyclic", "base", base, 0, max);
        internal::require_steps("Cyclic", "step_size_up", step_size_up, 1);
        internal::require_steps("Cyclic", "step_size_down", step_size_down, 0);
        internal::require_between("Cyclic", "gamma", gamma, 0);
        internal::require_between("Cyclic", "max_momentum", max_momentum, 0, 1);
        internal::require_between("Cyclic", "base_momentum", base_momentum, 0, max_momentum);
    }
    /// Returns the height of a step between 0 (`base`) and 1 (`max`).
    [[nodiscard]] double height(std::int64_t step) const {
        check();
        internal::require_step("Cyclic", step);
        const std::int64_t down = step_size_down == 0 ? step_size_up : step_size_down;
        const std::int64_t length = step_size_up > forever - down ? forever : step_size_up + down;
        const std::int64_t within = step % length;
        const double line = within <= step_size_up ? internal::ratio(within, step_size_up)
                                                   : internal::ratio(length - within, down);
        switch (mode) {
        case CyclicMode::triangular2:
            return line * internal::power(0.5, static_cast<double>(step / length));
        case CyclicMode::exp_range:
            return line * internal::power(gamma, static_cast<double>(step));
        case CyclicMode::triangular:
            break;
        }
        return line;
    }
};

} // namespace rtrain::schedule
