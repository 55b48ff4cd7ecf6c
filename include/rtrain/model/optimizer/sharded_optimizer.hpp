// SPDX-License-Identifier: Apache-2.0
/// @file
/// The result of `worker.prepare(optimizer)` for optimizers without a fused step.
#pragma once

#include <rtrain/model/optimizer/fused_optimizer.hpp>
#include <rtrain/model/optimizer/sharded_optimizer_base.hpp>
#include <rtrain/process/memory/deferred_copy.hpp>

#include <c10/core/GradMode.h>
#include <torch/optim.h>

#include <concepts>
#include <type_traits>
#include <utility>

namespace rtrain {

/// An `O` in every respect, which steps this rank's parts where the model is sharded.
template <std::derived_from<torch::optim::Optimizer> O>
class ShardedOptimizer final : public detail::ShardedOptimizerBase<O> {
public:
    explicit ShardedOptimizer(O optimizer, const detail::SharedModels& models = {})
        : detail::ShardedOptimizerBase<O>(std::move(optimizer), models) {}
    ShardedOptimizer(ShardedOptimizer&& other)
        : detail::ShardedOptimizerBase<O>(std::move(other)) {}

    /// Steps this rank's parts, between two barriers of the ranks of a node.
    at::Tensor step(typename O::LossClosure closure = nullptr) override {
        if (!this->parts_.any()) {
            process::DeferredCopy::finish_all();
            return O::step(std::move(closure));
        }
        return this->step_parts(closure);
    }

private:
    void step_now() override { (void)O::step(nullptr); }
};

namespace detail {

/// The type of a prepared optimizer of type O.
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
