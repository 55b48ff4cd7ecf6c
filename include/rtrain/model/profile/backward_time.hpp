// SPDX-License-Identifier: Apache-2.0
/// @file
/// Notifies the step clock and the engine when a backward pass runs, also on one rank, where no
/// gradient is averaged.
#pragma once

#include <rtrain/process/context.hpp>
#include <rtrain/process/status/step_clock.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Called when backward reaches a model's output.
struct BackwardStart {
    bool reached = false; ///< set then
    std::function<void()> begin = [] {};
    std::function<void()> end = [] {}; ///< not when an exception ends backward
};

/// Runs when backward reaches the operation that it is attached to.
struct BackwardTime final : torch::autograd::FunctionPreHook {
    explicit BackwardTime(std::shared_ptr<BackwardStart> start) : start_(std::move(start)) {}
    std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& gradients) override {
        start_->reached = true;
        StepClock& clock = ProcessContext::current().clock;
        if (clock.enter(StepPart::backward) != StepPart::backward) { // begun by another output
            start_->begin();
            torch::autograd::Engine::get_default_engine().queue_callback([&clock, start = start_] {
                clock.add_step();
                (void)clock.enter(StepPart::optimizer);
                start->end();
            });
        }
        return gradients;
    }

private:
    std::shared_ptr<BackwardStart> start_;
};

/// Times backward from this output of a model on.
inline void time_backward_from(const at::Tensor& output,
                               const std::shared_ptr<BackwardStart>& start) {
    if (output.defined() && output.grad_fn()) {
        output.grad_fn()->add_pre_hook(std::make_unique<BackwardTime>(start));
    }
}

} // namespace rtrain::detail
