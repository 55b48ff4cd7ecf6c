// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a schedule is, and schedules that consist of others: one after the other, and products.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/schedule/check.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

namespace rtrain::schedule {

/// A pure function of the optimizer step, from 0, that returns a multiplier of the optimizer's
/// initial learning rate. Lambdas are schedules, too.
template <class F>
concept Schedule =
    std::copy_constructible<F> && std::is_invocable_r_v<double, const F&, std::int64_t>;

/// A schedule that may also set the optimizer's momentum, or the first beta of Adam.
template <class F>
concept MomentumSchedule = Schedule<F> && requires(const F& f, std::int64_t step) {
    { f.momentum(step) } -> std::same_as<std::optional<double>>;
    { f.sets_momentum() } -> std::same_as<bool>;
};

template <Schedule First, Schedule Second>
struct Then;

namespace internal {

/// `f` may take any type of number; std::invoke converts without a warning.
template <class F>
constexpr double call(const F& f, std::int64_t step) {
    return static_cast<double>(std::invoke(f, step));
}
template <class F>
constexpr bool sets_momentum(const F& f) {
    if constexpr (MomentumSchedule<F>) {
        return f.sets_momentum();
    } else {
        return false;
    }
}
template <class F>
constexpr std::optional<double> momentum(const F& f, std::int64_t step) {
    if constexpr (MomentumSchedule<F>) {
        return f.momentum(step);
    } else {
        return std::nullopt;
    }
}

/// `first` until step `after`, at which `second` starts at its step 0.
template <class First, class Second>
constexpr Then<First, Second> chain(const First& first, Second second, std::int64_t after) {
    require_steps("then()", "the step at which the next schedule starts", after, 0);
    if (after == forever) {
        throw ConfigError("RT-C80", "schedule::then(): the first schedule never ends; give its "
                                    "number of steps, or the step at which the next one starts: "
                                    "a.then(b, 1000)");
    }
    return {first, std::move(second), after};
}

} // namespace internal

/// The result of `a.then(b)`, like torch's SequentialLR: `first` before step `after`, then `second`
/// from its step 0 on.
template <Schedule First, Schedule Second>
struct Then {
    First first;        ///< schedule of the steps before `after`
    Second second;      ///< schedule of the other steps
    std::int64_t after; ///< step at which `second` starts

    /// Returns the multiplier of a step.
    constexpr double operator()(std::int64_t step) const {
        return step < after ? internal::call(first, step) : internal::call(second, step - after);
    }
    /// Returns the number of steps.
    [[nodiscard]] constexpr std::int64_t length() const requires requires(const Second& next) {
        next.length();
    }
    {
        const std::int64_t rest = second.length();
        return rest > forever - after ? forever : after + rest;
    }
    /// Returns the momentum of a step; nothing is the optimizer's initial momentum.
    [[nodiscard]] constexpr std::optional<double> momentum(std::int64_t step) const {
        return step < after ? internal::momentum(first, step)
                            : internal::momentum(second, step - after);
    }
    /// True if one of the two sets the momentum.
    [[nodiscard]] constexpr bool sets_momentum() const {
        return internal::sets_momentum(first) || internal::sets_momentum(second);
    }
    /// Adds a schedule that starts after the last step of `second`.
    template <Schedule Next>
    [[nodiscard]] constexpr auto then(Next next) const requires requires(const Second& last) {
        last.length();
    }
    { return internal::chain(*this, std::move(next), length()); }
    /// Adds a schedule that starts at a step.
    template <Schedule Next>
    [[nodiscard]] constexpr auto then(Next next, std::int64_t at) const {
        return internal::chain(*this, std::move(next), at);
    }
};

/// The result of `a * b`, like torch's ChainedScheduler.
template <Schedule First, Schedule Second>
struct Product {
    First first;   ///< one factor
    Second second; ///< the other

    /// Returns the multiplier of a step.
    constexpr double operator()(std::int64_t step) const {
        return internal::call(first, step) * internal::call(second, step);
    }
    /// Returns the momentum of a step: that of `first`, or else that of `second`.
    [[nodiscard]] constexpr std::optional<double> momentum(std::int64_t step) const {
        const auto found = internal::momentum(first, step);
        return found ? found : internal::momentum(second, step);
    }
    /// True if one of the two sets the momentum.
    [[nodiscard]] constexpr bool sets_momentum() const {
        return internal::sets_momentum(first) || internal::sets_momentum(second);
    }
    /// Adds a schedule that starts at a step.
    template <Schedule Next>
    [[nodiscard]] constexpr auto then(Next next, std::int64_t at) const {
        return internal::chain(*this, std::move(next), at);
    }
};

/// A custom function as a schedule that has then(), like torch's LambdaLR.
template <class F>
struct Lambda {
    F function; ///< returns the multiplier of a step

    /// Returns the multiplier of a step.
    constexpr double operator()(std::int64_t step) const { return internal::call(function, step); }
    /// Adds a schedule that starts at a step.
    template <Schedule Next>
    [[nodiscard]] constexpr auto then(Next next, std::int64_t at) const {
        return internal::chain(*this, std::move(next), at);
    }
};
template <class F>
Lambda(F) -> Lambda<F>;

/// Multiplies two schedules, step by step.
template <Schedule First, Schedule Second>
[[nodiscard]] constexpr Product<First, Second> operator*(First first, Second second) {
    return {std::move(first), std::move(second)};
}

} // namespace rtrain::schedule
