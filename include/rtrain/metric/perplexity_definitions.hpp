// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door perplexity.hpp.
#pragma once

#include <rtrain/metric/numbers.hpp>
#include <rtrain/metric/perplexity.hpp>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <cstdint>

namespace rtrain::metric {

RTRAIN_DOOR Perplexity::Perplexity(const PerplexityOptions& options)
    : Comparison("Perplexity", {.counts = {0}, .sums = {0}}), options_(options) {}

RTRAIN_DOOR void Perplexity::update(const at::Tensor& predictions, const at::Tensor& targets) {
    const c10::NoGradGuard no_grad;
    if (predictions.dim() < 1 || !predictions.is_floating_point() || targets.is_floating_point() ||
        targets.sizes() != predictions.sizes().slice(0, predictions.sizes().size() - 1)) {
        throw wrong("RT-V40", "predictions are ", predictions.scalar_type(), " of shape ",
                    predictions.sizes(), ", targets ", targets.scalar_type(), " of ",
                    targets.sizes(), "; expected logits (..., V) and integers (...)");
    }
    const std::int64_t tokens = predictions.size(-1);
    at::Tensor wanted = targets.reshape({-1}).to(predictions.device(), at::kLong);
    at::Tensor logits = predictions.reshape({-1, tokens});
    if (options_.ignore_index) {
        const at::Tensor counts = wanted.ne(*options_.ignore_index);
        wanted = wanted.index({counts});
        logits = logits.index({counts});
    }
    if (wanted.numel() == 0) {
        return;
    }
    const auto [least, most] = at::aminmax(wanted);
    if (least.item<std::int64_t>() < 0 || most.item<std::int64_t>() >= tokens) {
        throw wrong("RT-V41", "targets are from ", least.item<std::int64_t>(), " to ",
                    most.item<std::int64_t>(), "; expected 0 to ", tokens - 1);
    }
    const auto type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const Numbers logs(at::log_softmax(logits, 1, type).gather(1, wanted.unsqueeze(1)));
    double sum = 0;
    for (const double log : logs.all()) {
        sum -= log;
    }
    if (std::isnan(sum)) {
        throw wrong("RT-V42", "predictions have NaN; a logit must be a number");
    }
    tally().sums[0] += sum;
    tally().counts[0] += wanted.numel();
}

RTRAIN_DOOR Value Perplexity::compute() const {
    return std::exp(tally().sums[0] / static_cast<double>(tally().counts[0]));
}

} // namespace rtrain::metric
