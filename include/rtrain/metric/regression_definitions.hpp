// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door regression.hpp.
#pragma once

#include <rtrain/metric/numbers.hpp>
#include <rtrain/metric/regression.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::metric {

RTRAIN_DOOR MeanError::MeanError(std::string kind, const ErrorOptions& options)
    : Comparison(std::move(kind), {.counts = {0}}), options_(options) {
    if (options.num_outputs < 1) {
        throw wrong("RT-V43", "num_outputs is ", options.num_outputs, "; expected at least 1");
    }
    tally().sums.resize(static_cast<std::size_t>(options.num_outputs));
}

RTRAIN_DOOR void MeanError::update(const at::Tensor& predictions, const at::Tensor& targets) {
    const std::int64_t outputs = options_.num_outputs;
    const bool has_columns = targets.dim() == 2 && targets.size(1) == outputs;
    if (predictions.sizes() != targets.sizes() || (outputs > 1 && !has_columns)) {
        throw wrong("RT-V40", "predictions have shape ", predictions.sizes(), ", targets ",
                    targets.sizes(), "; expected equal shapes",
                    outputs > 1 ? ", (N, num_outputs)" : "");
    }
    const Numbers predicted(predictions);
    const Numbers wanted(targets);
    const auto width = static_cast<std::size_t>(outputs);
    for (std::size_t i = 0; i < wanted.all().size(); ++i) {
        tally().sums[i % width] += error(predicted.all()[i] - wanted.all()[i]);
    }
    tally().counts[0] += targets.numel() / outputs;
}

RTRAIN_DOOR Value MeanError::compute() const {
    std::vector<double> means;
    for (const double sum : tally().sums) {
        const double mean = sum / static_cast<double>(tally().counts[0]);
        means.push_back(options_.squared ? mean : std::sqrt(mean));
    }
    return means.size() == 1 ? Value(means.front())
                             : Value(std::move(means), {options_.num_outputs});
}

RTRAIN_DOOR MeanAbsoluteError::MeanAbsoluteError(const ErrorOptions& options)
    : MeanError("MeanAbsoluteError", options) {
    if (!options.squared) {
        throw wrong("RT-V43", "squared is false; leave it true, or use MeanSquaredError");
    }
}

RTRAIN_DOOR R2Score::R2Score(const R2Options& options)
    : Comparison("R2Score", {.counts = {0}}), options_(options) {
    if (options.num_outputs < 1 || options.adjusted < 0) {
        throw wrong("RT-V43", "num_outputs is ", options.num_outputs, ", adjusted ",
                    options.adjusted, "; expected at least 1, and at least 0");
    }
    tally().sums.resize(static_cast<std::size_t>(options.num_outputs)); // of squared residuals
    tally().spreads.resize(tally().sums.size());                        // of targets
}

RTRAIN_DOOR void R2Score::update(const at::Tensor& predictions, const at::Tensor& targets) {
    const std::int64_t outputs = options_.num_outputs;
    const bool has_columns = targets.dim() == 2 && targets.size(1) == outputs;
    if (predictions.sizes() != targets.sizes() ||
        !(has_columns || (outputs == 1 && targets.dim() == 1))) {
        throw wrong("RT-V40", "predictions have shape ", predictions.sizes(), ", targets ",
                    targets.sizes(), "; expected equal shapes, (N, ", outputs, ")");
    }
    const Numbers predicted(predictions);
    const Numbers wanted(targets);
    for (std::size_t i = 0; i < wanted.all().size(); ++i) {
        const std::size_t output = i % static_cast<std::size_t>(outputs);
        const double residual = wanted.all()[i] - predicted.all()[i];
        tally().sums[output] += residual * residual;
        tally().spreads[output].see(wanted.all()[i]);
    }
    tally().counts[0] += targets.size(0);
}

RTRAIN_DOOR Value R2Score::compute() const {
    const auto rows = static_cast<double>(tally().counts[0]);
    if (rows < 2) {
        return std::numeric_limits<double>::quiet_NaN();
    }
    const auto adjusted = static_cast<double>(options_.adjusted);
    const bool is_adjusted = adjusted > 0 && adjusted < rows - 1;
    const auto adjust = [&](double score) {
        return is_adjusted ? 1 - (1 - score) * (rows - 1) / (rows - adjusted - 1) : score;
    };
    std::vector<double> scores;
    double sum = 0;
    double weights = 0;
    double plain_sum = 0;
    for (std::size_t output = 0; output < tally().sums.size(); ++output) {
        const double residuals = tally().sums[output];
        const double variance = tally().spreads[output].squares;
        const double explained = residuals == 0 ? 1 : variance == 0 ? 0 : 1 - residuals / variance;
        const double weight = options_.multioutput == MultiOutput::variance_weighted ? variance : 1;
        sum += weight * explained;
        weights += weight;
        plain_sum += explained;
        scores.push_back(adjust(explained));
    }
    if (options_.multioutput == MultiOutput::raw_values && scores.size() > 1) {
        return {std::move(scores), {options_.num_outputs}};
    }
    // Constant targets give no weights; take the plain mean, like scikit-learn.
    return adjust(weights == 0 ? plain_sum / static_cast<double>(scores.size()) : sum / weights);
}

} // namespace rtrain::metric
