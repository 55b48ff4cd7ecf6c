// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tells the step clock when a backward pass runs, also on one rank, where no gradient is averaged.
#pragma once

#include <rtrain/process/step_clock.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <memory>
#include <vector>

namespace rtrain::detail {

/// Runs when backward comes to the operation that it hangs on.
struct BackwardTime final : torch::autograd::FunctionPreHook {
    std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& gradients) override {
        StepClock& clock = StepClock::current();
        if (clock.enter(StepPart::backward) != StepPart::backward) { // else of another output
            torch::autograd::Engine::get_default_engine().queue_callback([&clock] {
                clock.add_step();
                (void)clock.enter(StepPart::optimizer);
            });
        }
        return gradients;
    }
};

/// What backward does from this output of a model on is its time.
inline void time_backward_from(const at::Tensor& output) {
    if (output.defined() && output.grad_fn()) {
        output.grad_fn()->add_pre_hook(std::make_unique<BackwardTime>());
    }
}

} // namespace rtrain::detail
