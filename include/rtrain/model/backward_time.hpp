// SPDX-License-Identifier: Apache-2.0
/// @file
/// Notifies the step clock when a backward pass runs, also on one rank, where no gradient is
/// averaged.
#pragma once

#include <rtrain/process/step_clock.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <memory>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Runs when backward reaches the operation that it is attached to.
struct BackwardTime final : torch::autograd::FunctionPreHook {
    explicit BackwardTime(std::shared_ptr<bool> called) : called_(std::move(called)) {}
    std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& gradients) override {
        *called_ = true;
        StepClock& clock = StepClock::current();
        if (clock.enter(StepPart::backward) != StepPart::backward) { // begun by another output
            torch::autograd::Engine::get_default_engine().queue_callback([&clock] {
                clock.add_step();
                (void)clock.enter(StepPart::optimizer);
            });
        }
        return gradients;
    }

private:
    std::shared_ptr<bool> called_;
};

/// Times backward from this output of a model on. Sets `called` when backward reaches it.
inline void time_backward_from(const at::Tensor& output, const std::shared_ptr<bool>& called) {
    if (output.defined() && output.grad_fn()) {
        output.grad_fn()->add_pre_hook(std::make_unique<BackwardTime>(called));
    }
}

} // namespace rtrain::detail
