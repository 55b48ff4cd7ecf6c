// SPDX-License-Identifier: Apache-2.0
/// @file
/// EvaluationMode: a module evaluates, then each of its parts is again in the mode it was in.
#pragma once

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <memory>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// While it lives, the module is in evaluation mode, and this thread computes no gradients.
class EvaluationMode {
public:
    explicit EvaluationMode(torch::nn::Module& module) {
        for (const auto& part : module.modules()) {
            before_.emplace_back(part, part->is_training());
        }
        module.eval();
    }
    EvaluationMode(const EvaluationMode&) = delete;
    EvaluationMode& operator=(const EvaluationMode&) = delete;
    ~EvaluationMode() {
        for (const auto& [part, trains] : before_) { // parents first: train() applies to children
            part->train(trains);
        }
    }

private:
    c10::NoGradGuard no_grad_;
    std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> before_;
};

} // namespace rtrain::detail
