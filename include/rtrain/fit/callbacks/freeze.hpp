// SPDX-License-Identifier: Apache-2.0
/// @file
/// Freeze: parameters that train from a later epoch on.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/fit/step.hpp>

#include <torch/nn/module.h>

#include <limits>
#include <string>

namespace rtrain {

/// A callback of Fit that freezes parameters until an epoch, as Lightning's BackboneFinetuning
/// does.
struct Freeze {
    std::string parameters{}; ///< prefix of their names, such as "backbone."; empty: all
    /// The first epoch in which they train.
    int until_epoch = std::numeric_limits<int>::max();

    /// Called by Fit. Throws ConfigError [RT-F18] if no parameter has the prefix.
    void on_train_epoch_start(torch::nn::Module& module, Step& step) const {
        bool found = false;
        for (auto& item : module.named_parameters()) {
            if (item.key().starts_with(parameters)) {
                item.value().set_requires_grad(step.epoch() >= until_epoch);
                found = true;
            }
        }
        if (!found) {
            throw ConfigError("RT-F18", detail::concat("Freeze: no parameter's name begins with \"",
                                                       parameters, "\"; see named_parameters()"));
        }
    }
};

} // namespace rtrain
