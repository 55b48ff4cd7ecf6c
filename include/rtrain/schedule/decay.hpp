// SPDX-License-Identifier: Apache-2.0
/// @file
/// Schedules without a cosine: constant, linear, in steps, exponential, polynomial, inverse square
/// root. Cost tier 0: std only.
#pragma once

#include <rtrain/schedule/chain.hpp>
#include <rtrain/schedule/check.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain::schedule {

/// torch's ConstantLR: `factor` before step `steps`, then 1.
struct Constant {
    double factor = 1;            ///< at least 0
    std::int64_t steps = forever; ///< at least 0

    /// Returns the multiplier of a step. Throws ConfigError [RT-C80, RT-C81].
    constexpr double operator()(std::int64_t step) const {
        internal::require_between("Constant", "factor", factor, 0);
        internal::require_steps("Constant", "steps", steps, 0);
        internal::require_step("Constant", step);
        return step < steps ? factor : 1;
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

/// torch's LinearLR: a line from `start_factor` to `end_factor`, which then stays.
struct Linear {
    std::int64_t steps = internal::unset; ///< at least 0
    double start_factor = 1.0 / 3;        ///< multiplier of step 0
    double end_factor = 1;                ///< multiplier from step `steps` on

    /// Returns the multiplier of a step. Throws ConfigError [RT-C80, RT-C81].
    constexpr double operator()(std::int64_t step) const {
        internal::require_steps("Linear", "steps", steps, 0);
        internal::require_between("Linear", "start_factor", start_factor, 0);
        internal::require_between("Linear", "end_factor", end_factor, 0);
        internal::require_step("Linear", step);
        return step >= steps
                   ? end_factor
                   : start_factor + (end_factor - start_factor) * internal::ratio(step, steps);
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

/// A line from `start_factor` to 1, for then(): step `steps` is the first one with the full rate.
struct Warmup {
    std::int64_t steps = internal::unset; ///< at least 0
    double start_factor = 0;              ///< multiplier of step 0, at most 1

    /// Returns the multiplier of a step. Throws ConfigError [RT-C80, RT-C81].
    constexpr double operator()(std::int64_t step) const {
        internal::require_steps("Warmup", "steps", steps, 0);
        internal::require_between("Warmup", "start_factor", start_factor, 0, 1);
        internal::require_step("Warmup", step);
        return step >= steps ? 1 : start_factor + (1 - start_factor) * internal::ratio(step, steps);
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

/// torch's StepLR: multiplies by `gamma` every `step_size` steps.
struct Step {
    std::int64_t step_size = internal::unset; ///< at least 1
    double gamma = 0.1;                       ///< at least 0

    /// Returns the multiplier of a step. Throws ConfigError [RT-C80, RT-C81].
    constexpr double operator()(std::int64_t step) const {
        internal::require_steps("Step", "step_size", step_size, 1);
        internal::require_between("Step", "gamma", gamma, 0);
        internal::require_step("Step", step);
        return internal::power(gamma, static_cast<double>(step / step_size));
    }
    /// Adds a schedule that starts at a step.
    template <Schedule Next>
    [[nodiscard]] constexpr auto then(Next next, std::int64_t at) const {
        return internal::chain(*this, std::move(next), at);
    }
};

/// torch's MultiStepLR: multiplies by `gamma` at each milestone; a step that is listed twice counts
/// twice.
struct MultiStep {
    std::vector<std::int64_t> milestones{}; ///< steps, each at least 0, in any order
    double gamma = 0.1;                     ///< at least 0

    /// Returns the multiplier of a step. Throws ConfigError [RT-C80, RT-C81].
    constexpr double operator()(std::int64_t step) const {
        internal::require_between("MultiStep", "gamma", gamma, 0);
        internal::require_step("MultiStep", step);
        std::int64_t passed = 0;
        for (const std::int64_t milestone : milestones) {
            internal::require_steps("MultiStep", "a milestone", milestone, 0);
            passed += step >= milestone ? 1 : 0;
        }
        return internal::power(gamma, static_cast<double>(passed));
    }
    /// Adds a schedule that starts at a step.
    template <Schedule Next>
    [[nodiscard]] constexpr auto then(Next next, std::int64_t at) const {
        return internal::chain(*this, std::move(next), at);
    }
};

/// torch's ExponentialLR: multiplies by `gamma` every step.
struct Exponential {
    double gamma = 0.999; ///< at least 0

    /// Returns the multiplier of a step. Throws ConfigError [RT-C80, RT-C81].
    constexpr double operator()(std::int64_t step) const {
        internal::require_between("Exponential", "gamma", gamma, 0);
        internal::require_step("Exponential", step);
        return internal::power(gamma, static_cast<double>(step));
    }
    /// Adds a schedule that starts at a step.
    template <Schedule Next>
    [[nodiscard]] constexpr auto then(Next next, std::int64_t at) const {
        return internal::chain(*this, std::move(next), at);
    }
};

/// torch's PolynomialLR: (1 - step / steps) to a power; 0 from step `steps` on.
struct Polynomial {
    std::int64_t steps = internal::unset; ///< at least 1
    double power = 1;                     ///< at least 0

    /// Returns the multiplier of a step. Throws ConfigError [RT-C80, RT-C81].
    constexpr double operator()(std::int64_t step) const {
        internal::require_steps("Polynomial", "steps", steps, 1);
        internal::require_between("Polynomial", "power", power, 0);
        internal::require_step("Polynomial", step);
        return internal::power(1 - internal::ratio(std::min(step, steps), steps), power);
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

/// sqrt(timescale / (step + timescale)). `Warmup{w}.then(InverseSqrt{w})` is the schedule of the
/// Transformer, and get_inverse_sqrt_schedule of Hugging Face's transformers.
struct InverseSqrt {
    std::int64_t timescale = 10'000; ///< steps, at least 1

    /// Returns the multiplier of a step. Throws ConfigError [RT-C80, RT-C81].
    double operator()(std::int64_t step) const {
        internal::require_steps("InverseSqrt", "timescale", timescale, 1);
        internal::require_step("InverseSqrt", step);
        const auto scale = static_cast<double>(timescale);
        return std::sqrt(scale / (static_cast<double>(step) + scale));
    }
    /// Adds a schedule that starts at a step.
    template <Schedule Next>
    [[nodiscard]] constexpr auto then(Next next, std::int64_t at) const {
        return internal::chain(*this, std::move(next), at);
    }
};

} // namespace rtrain::schedule
