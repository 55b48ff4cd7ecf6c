// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door averaged_weights.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/fit/callbacks/averaged_weights.hpp>
#include <rtrain/state/optimizer_parts.hpp>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

RTRAIN_DOOR AveragedWeights::Applied::~Applied() noexcept(false) {
    try {
        weights_.swap();
    } catch (...) {
        if (std::uncaught_exceptions() == exceptions_) {
            throw;
        }
    }
}

RTRAIN_DOOR const detail::WeightParts& AveragedWeights::model() const {
    if (!model_) {
        throw ConfigError("RT-F61", "Ema and Swa have no model: pass one to the constructor, such "
                                    "as Ema(model); only Fit passes its own");
    }
    return *model_;
}

RTRAIN_DOOR void AveragedWeights::require_own_weights(const char* call) const {
    if (is_applied_) {
        throw ConfigError("RT-F82",
                          detail::concat("Ema or Swa: ", call,
                                         " needs the model's own weights, but applied() has given "
                                         "it the averages; end the block of applied() first"));
    }
}

RTRAIN_DOOR void AveragedWeights::average(double weight_of_new) {
    require_own_weights("update()");
    const c10::NoGradGuard no_grad;
    const std::vector<at::Tensor>& weights = model().tensors();
    if (count_++ == 0) {
        averages_.clear();
        for (const at::Tensor& weight : weights) {
            averages_.push_back(weight.detach().clone());
        }
    } else if (!averages_.empty()) {
        at::_foreach_lerp_(averages_, weights, weight_of_new);
    }
}

RTRAIN_DOOR void AveragedWeights::swap() {
    const detail::WeightParts& weights = model();
    is_applied_ = !is_applied_;
    if (count_ == 0) {
        return;
    }
    weights.write([&] {
        for (std::size_t i = 0; i < averages_.size(); ++i) {
            at::Tensor weight = weights.tensors()[i];
            const at::Tensor own = weight.detach().clone();
            weight.copy_(averages_[i]);
            averages_[i].copy_(own);
        }
    });
}

RTRAIN_DOOR void AveragedWeights::save(StateWriter& out) const {
    require_own_weights("saving");
    out.value("count", count_);
    for (std::size_t i = 0; i < averages_.size(); ++i) {
        const std::string name = std::to_string(i);
        if (const auto* const part = model().find_part(i)) {
            out.elements(name, part->shape, part->begin, checkpoint::in_rows(*part, averages_[i]));
        } else if (out.is_own_of_ranks(model().tensors()[i])) {
            out.tensor_of_rank_0(name, averages_[i]);
        } else {
            out.tensor(name, averages_[i]);
        }
    }
}

RTRAIN_DOOR void AveragedWeights::load(const StateReader& in) {
    require_own_weights("loading");
    count_ = in.value("count").to_number<std::int64_t>();
    averages_.clear();
    const std::vector<at::Tensor>& weights = model().tensors();
    for (std::size_t i = 0; i < weights.size() && count_ > 0; ++i) {
        const auto* const part = model().find_part(i);
        const std::int64_t begin = part == nullptr ? 0 : part->begin;
        const at::Tensor saved =
            in.elements(std::to_string(i), part == nullptr ? weights[i].sizes().vec() : part->shape,
                        begin, begin + weights[i].numel());
        averages_.push_back(
            (part == nullptr ? saved.view(weights[i].sizes()) : checkpoint::in_memory(*part, saved))
                .to(weights[i].options()));
    }
}

RTRAIN_DOOR Ema::Ema(const EmaOptions& options) : options_(options) {
    if (!(options.decay >= 0 && options.decay < 1)) {
        throw ConfigError("RT-F10", detail::concat("Ema: decay is ", options.decay,
                                                   "; expected at least 0 and less than 1"));
    }
}

RTRAIN_DOOR Ema::Ema(detail::WeightParts model, const EmaOptions& options) : Ema(options) {
    bind(std::move(model));
}

RTRAIN_DOOR void Ema::on_train_batch_end(torch::nn::Module& /*module*/,
                                         const data::Batch& /*batch*/, Step& step) {
    if (step.ends_window()) {
        update();
    }
}
RTRAIN_DOOR void Ema::on_validation_start(torch::nn::Module& /*module*/, Step& /*step*/) {
    swap();
}
RTRAIN_DOOR void Ema::on_validation_end(torch::nn::Module& /*module*/, Step& /*step*/) {
    swap();
}
RTRAIN_DOOR void Ema::on_test_start(torch::nn::Module& /*module*/, Step& /*step*/) {
    swap();
}
RTRAIN_DOOR void Ema::on_predict_start(torch::nn::Module& /*module*/, Step& /*step*/) {
    swap();
}

RTRAIN_DOOR Swa::Swa(const SwaOptions& options) : options_(options) {
    if (options.from_epoch < 0) {
        throw ConfigError("RT-F10", detail::concat("Swa: from_epoch is ", options.from_epoch,
                                                   "; expected at least 0"));
    }
}

RTRAIN_DOOR void Swa::on_train_epoch_end(torch::nn::Module& /*module*/, Step& step) {
    if (step.epoch() >= options_.from_epoch) {
        update();
    }
}
RTRAIN_DOOR void Swa::on_test_start(torch::nn::Module& /*module*/, Step& /*step*/) {
    swap();
}
RTRAIN_DOOR void Swa::on_predict_start(torch::nn::Module& /*module*/, Step& /*step*/) {
    swap();
}

} // namespace rtrain
