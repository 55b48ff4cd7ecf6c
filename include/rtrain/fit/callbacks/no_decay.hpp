// SPDX-License-Identifier: Apache-2.0
/// @file
/// no_decay(): parameter groups with and without weight decay.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <concepts>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain {

/// Returns two parameter groups: parameters of two and more dimensions with `options`; biases and
/// norms with the same but no weight decay.
///
/// @code
/// torch::optim::AdamWOptions options(1e-3);
/// torch::optim::AdamW optimizer(rtrain::no_decay(*this, options), options);
/// @endcode
template <std::derived_from<torch::optim::OptimizerOptions> Options>
[[nodiscard]] std::vector<torch::optim::OptimizerParamGroup>
no_decay(const torch::nn::Module& module, const Options& options) {
    std::vector<at::Tensor> decayed;
    std::vector<at::Tensor> others;
    for (const at::Tensor& parameter : module.parameters()) {
        (parameter.dim() > 1 ? decayed : others).push_back(parameter);
    }
    Options without = options;
    without.weight_decay(0);
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::move(decayed), std::make_unique<Options>(options));
    groups.emplace_back(std::move(others), std::make_unique<Options>(without));
    return groups;
}

} // namespace rtrain
