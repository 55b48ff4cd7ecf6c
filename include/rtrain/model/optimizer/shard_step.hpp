// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parts of sharded models in prepared optimizers: they replace parameters, and synchronize
/// ranks around a step.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/model/parameters/backward_step_hook.hpp>
#include <rtrain/state/optimizer_parts.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::detail {

class DiskOptimizerState;
class SharedWeights;
/// The sharded models of a worker.
using SharedModels = std::vector<std::shared_ptr<SharedWeights>>;

class ShardStep {
public:
    ShardStep() = default;
    /// Replaces the parameters of `models` by parts, in all groups, and keeps the optimizer's state
    /// for them. Throws ModelError [RT-M45] for an optimizer that does not step each element
    /// independently, ConfigError [RT-C12] when backward is to step some of its parameters and not
    /// others, StorageError [RT-S3] from a disk for moments.
    ShardStep(torch::optim::Optimizer& optimizer, const SharedModels& models);

    [[nodiscard]] bool any() const noexcept { return !models_.empty(); }
    /// True for a model with step_in_backward.
    [[nodiscard]] bool steps_in_backward() const;
    /// Sets how backward steps parameters that have a gradient; again when the optimizer has moved.
    void connect(std::function<void()> step) const { link_->step = std::move(step); }

    /// Calls `step`, which steps all parameters that have a gradient: all together, or some at a
    /// time.
    void run(torch::optim::Optimizer& optimizer, const std::function<void()>& step) const;
    /// Called when a parameter's optimizer state has been loaded.
    void settle(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) const;

    /// Before and after parameters are written. *Collective* where there are parts. Throws
    /// ModelError [RT-M42] for a parameter that was added to the optimizer later.
    void begin_step(torch::optim::Optimizer& optimizer) const;
    void end_step() const;

    /// Also zeroes the gradients of a model's own tensors.
    void zero_gradients() const;

    /// Returns whether `here` is true on any of the ranks that share parts. *Collective* then.
    [[nodiscard]] bool on_any_rank(bool here) const;

    [[nodiscard]] const checkpoint::PartOf* part_of(const at::Tensor& parameter) const;
    [[nodiscard]] at::Tensor whole_of(const at::Tensor& parameter) const;

private:
    std::shared_ptr<BackwardStepHook> link_ = std::make_shared<BackwardStepHook>();
    SharedModels models_;                      ///< of which it has parts
    std::shared_ptr<DiskOptimizerState> disk_; ///< null: moments are in memory
};

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/model/optimizer/shard_step_definitions.hpp>
#endif
