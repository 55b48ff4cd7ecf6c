// SPDX-License-Identifier: Apache-2.0
/// @file
/// A schedule of any type. Cost tier 0: std only.
#pragma once

#include <rtrain/schedule/chain.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace rtrain::schedule {

/// Holds a schedule of any type, for containers and non-template code. Copies share it, because it
/// never changes.
class Any {
public:
    /// Holds a copy of `f`.
    template <class F>
    requires(!std::same_as<F, Any> && Schedule<F>) Any(F f)
        : held_(std::make_shared<const Held<F>>(std::move(f))) {} // NOLINT: any schedule is one

    /// Returns the multiplier of a step.
    double operator()(std::int64_t step) const { return held_->multiplier(step); }
    /// Returns the momentum of a step; nothing is the optimizer's initial momentum.
    [[nodiscard]] std::optional<double> momentum(std::int64_t step) const {
        return held_->momentum(step);
    }
    /// True if it sets the momentum in some steps.
    [[nodiscard]] bool sets_momentum() const { return held_->sets_momentum(); }
    /// Adds a schedule that starts at a step.
    template <Schedule Next>
    [[nodiscard]] auto then(Next next, std::int64_t at) const {
        return internal::chain(*this, std::move(next), at);
    }

private:
    struct Base {
        Base() = default;
        Base(const Base&) = delete;
        Base& operator=(const Base&) = delete;
        virtual ~Base() = default;
        [[nodiscard]] virtual double multiplier(std::int64_t step) const = 0;
        [[nodiscard]] virtual std::optional<double> momentum(std::int64_t step) const = 0;
        [[nodiscard]] virtual bool sets_momentum() const = 0;
    };
    template <class F>
    struct Held final : Base {
        explicit Held(F given) : f(std::move(given)) {}
        [[nodiscard]] double multiplier(std::int64_t step) const override {
            return internal::call(f, step);
        }
        [[nodiscard]] std::optional<double> momentum(std::int64_t step) const override {
            return internal::momentum(f, step);
        }
        [[nodiscard]] bool sets_momentum() const override { return internal::sets_momentum(f); }
        F f;
    };

    std::shared_ptr<const Base> held_;
};

} // namespace rtrain::schedule
