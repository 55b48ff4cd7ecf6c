// SPDX-License-Identifier: Apache-2.0
/// @file
/// LrMonitor: logs the learning rates.
#pragma once

#include <rtrain/fit/step.hpp>

#include <torch/nn/module.h>

#include <cstddef>
#include <string>

namespace rtrain {

/// A callback of Fit that logs the learning rate of each parameter group before each step: "lr", or
/// "lr.1" and so on for further groups and optimizers.
struct LrMonitor {
    /// Called by Fit.
    void on_before_optimizer_step(torch::nn::Module& /*module*/, torch::optim::Optimizer& optimizer,
                                  Step& step) const {
        std::size_t number = 0;
        for (std::size_t i = 0; i < step.optimizers(); ++i) {
            for (const auto& group : step.optimizer(i).param_groups()) {
                if (&step.optimizer(i) == &optimizer) {
                    step.log(number == 0 ? "lr" : "lr." + std::to_string(number),
                             group.options().get_lr(), {.on_step = true, .on_epoch = false});
                }
                ++number;
            }
        }
    }
};

} // namespace rtrain
