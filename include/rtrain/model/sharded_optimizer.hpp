// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `worker.prepare(optimizer)` returns for optimizers without a fused step.
#pragma once

#include <rtrain/model/fused_optimizer.hpp>
#include <rtrain/model/step_parts.hpp>

#include <c10/core/GradMode.h>
#include <torch/optim.h>

#include <concepts>
#include <type_traits>
#include <utility>

namespace rtrain {

/// Is an `O` in every respect, and steps this rank's parts where the model is sharded.
template <std::derived_from<torch::optim::Optimizer> O>
class ShardedOptimizer : public O, public checkpoint::HoldsParts {
public:
    explicit ShardedOptimizer(O optimizer, const detail::SharedModels& models = {})
        : O(std::move(optimizer)), parts_(*this, models) {
        connect();
    }
    ShardedOptimizer(ShardedOptimizer&& other)
        : O(std::move(static_cast<O&>(other))), parts_(std::move(other.parts_)) {
        connect();
    }

    at::Tensor step(typename O::LossClosure closure = nullptr) override {
        if (!parts_.any()) {
            return O::step(std::move(closure));
        }
        at::Tensor loss;
        if (closure) {
            const at::AutoGradMode with_gradients(true);
            loss = closure();
        }
        parts_.begin_step(*this);
        (void)O::step(nullptr);
        parts_.end_step();
        return loss;
    }

    [[nodiscard]] const checkpoint::PartOf* part_of(const at::Tensor& parameter) const override {
        return parts_.part_of(parameter);
    }
    /// Whether it steps parts of a sharded model's parameters.
    [[nodiscard]] bool holds_parts() const noexcept { return parts_.any(); }
    /// See ShardedOptions.
    [[nodiscard]] bool steps_in_backward() const { return parts_.steps_in_backward(); }
    /// For GradScaler.
    [[nodiscard]] bool on_any_rank(bool here) const { return parts_.on_any_rank(here); }

private:
    void connect() {
        parts_.connect([this] { (void)O::step(nullptr); });
    }

    detail::StepParts parts_;
};

namespace detail {

/// What an optimizer of type O is prepared as.
template <class O>
struct PreparedOptimizer {
    using type = ShardedOptimizer<O>;
};
template <Fusible O>
struct PreparedOptimizer<O> {
    using type = FusedOptimizer<O>;
};

} // namespace detail
} // namespace rtrain
