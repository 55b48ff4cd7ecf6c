// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door averaged_weights.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/fit/callbacks/averaged_weights.hpp>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rtrain {

RTRAIN_DOOR void AveragedWeights::update(const torch::nn::Module& model, double weight_of_new) {
    const c10::NoGradGuard no_grad;
    const std::vector<at::Tensor> parameters = model.parameters();
    if (count_++ == 0) {
        averages_.clear();
        for (const at::Tensor& parameter : parameters) {
            averages_.push_back(parameter.detach().clone());
        }
    } else if (!averages_.empty()) {
        at::_foreach_lerp_(averages_, parameters, weight_of_new);
    }
}

RTRAIN_DOOR void AveragedWeights::swap(const torch::nn::Module& model) {
    const c10::NoGradGuard no_grad;
    const std::vector<at::Tensor> parameters = model.parameters();
    for (std::size_t i = 0; i < averages_.size(); ++i) {
        const at::Tensor own = parameters[i].detach().clone();
        parameters[i].copy_(averages_[i]);
        averages_[i].copy_(own);
    }
}

RTRAIN_DOOR void AveragedWeights::save(StateWriter& out) const {
    out.value("count", count_);
    for (std::size_t i = 0; i < averages_.size(); ++i) {
        out.tensor(std::to_string(i), averages_[i]);
    }
}

RTRAIN_DOOR void AveragedWeights::load(const StateReader& in) {
    count_ = in.value("count").to_number<std::int64_t>();
    averages_.clear();
    for (std::size_t i = 0; in.has_tensor(std::to_string(i)); ++i) {
        averages_.push_back(in.tensor(std::to_string(i)).clone());
    }
}

RTRAIN_DOOR Ema::Ema(const EmaOptions& options) : options_(options) {
    if (!(options.decay >= 0 && options.decay < 1)) {
        throw ConfigError("RT-F10", detail::concat("Ema: decay is ", options.decay,
                                                   "; expected at least 0 and less than 1"));
    }
}

RTRAIN_DOOR void Ema::on_train_batch_end(torch::nn::Module& module, const data::Batch& /*batch*/,
                                         Step& step) {
    if (step.ends_window()) {
        update(module);
    }
}
RTRAIN_DOOR void Ema::on_validation_start(torch::nn::Module& module, Step& /*step*/) {
    weights_.swap(module);
}
RTRAIN_DOOR void Ema::on_validation_end(torch::nn::Module& module, Step& /*step*/) {
    weights_.swap(module);
}
RTRAIN_DOOR void Ema::on_test_start(torch::nn::Module& module, Step& /*step*/) {
    weights_.swap(module);
}
RTRAIN_DOOR void Ema::on_predict_start(torch::nn::Module& module, Step& /*step*/) {
    weights_.swap(module);
}

RTRAIN_DOOR Swa::Swa(const SwaOptions& options) : options_(options) {
    if (options.from_epoch < 0) {
        throw ConfigError("RT-F10", detail::concat("Swa: from_epoch is ", options.from_epoch,
                                                   "; expected at least 0"));
    }
}

RTRAIN_DOOR void Swa::on_train_epoch_end(torch::nn::Module& module, Step& step) {
    if (step.epoch() >= options_.from_epoch) {
        update(module);
    }
}
RTRAIN_DOOR void Swa::on_test_start(torch::nn::Module& module, Step& /*step*/) {
    weights_.swap(module);
}
RTRAIN_DOOR void Swa::on_predict_start(torch::nn::Module& module, Step& /*step*/) {
    weights_.swap(module);
}

} // namespace rtrain
