// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door calibration.hpp.
#pragma once

#include <rtrain/metric/calibration.hpp>
#include <rtrain/metric/inputs.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace rtrain::metric {

RTRAIN_DOOR CalibrationError::CalibrationError(const CalibrationOptions& options)
    : Comparison("CalibrationError", {}), options_(options) {
    require_classes(label(), options.num_classes, 0);
    if (options.bins < 1) {
        throw wrong("RT-V43", "bins is ", options.bins, "; expected at least 1");
    }
    // A confidence of 1 has its own bin, as in torchmetrics. Each bin counts rows and correct rows.
    tally().counts.resize(2 * static_cast<std::size_t>(options.bins + 1));
    tally().sums.resize(static_cast<std::size_t>(options.bins + 1));
}

RTRAIN_DOOR void CalibrationError::update(const at::Tensor& predictions,
                                          const at::Tensor& targets) {
    const Inputs inputs(
        label(), {.num_classes = options_.num_classes, .ignore_index = options_.ignore_index});
    const auto [probabilities, wanted] = inputs.scores(predictions, targets);
    at::Tensor confidence = probabilities.select(1, 0);
    at::Tensor is_right = wanted.eq(1);
    if (options_.num_classes > 0) {
        const auto [highest, predicted] = probabilities.max(1);
        confidence = highest.to(at::kFloat);
        is_right = predicted.eq(wanted);
    }
    const at::Tensor bounds = at::linspace(0, 1, options_.bins + 1, confidence.scalar_type());
    const at::Tensor bins = at::bucketize(confidence.contiguous(), bounds, false, true).sub(1);
    const at::Tensor amounts = confidence.to(at::kDouble).contiguous();
    const auto* const bin = bins.const_data_ptr<std::int64_t>();
    const auto* const amount = amounts.const_data_ptr<double>();
    const auto* const right = is_right.const_data_ptr<bool>();
    for (std::int64_t row = 0; row < bins.numel(); ++row) {
        const auto of = static_cast<std::size_t>(bin[row]);
        ++tally().counts[2 * of];
        tally().counts[2 * of + 1] += right[row] ? 1 : 0;
        tally().sums[of] += amount[row];
    }
}

RTRAIN_DOOR Value CalibrationError::compute() const {
    double rows = 0;
    double sum = 0;
    double greatest = 0;
    for (std::size_t bin = 0; bin < tally().sums.size(); ++bin) {
        const auto of_bin = static_cast<double>(tally().counts[2 * bin]);
        if (of_bin > 0) {
            const auto right = static_cast<double>(tally().counts[2 * bin + 1]);
            const double error = std::abs(right - tally().sums[bin]) / of_bin;
            sum += (options_.norm == CalibrationNorm::l2 ? error * error : error) * of_bin;
            greatest = std::max(greatest, error);
            rows += of_bin;
        }
    }
    if (rows == 0) {
        return std::numeric_limits<double>::quiet_NaN();
    }
    return options_.norm == CalibrationNorm::max  ? greatest
           : options_.norm == CalibrationNorm::l2 ? std::sqrt(sum / rows)
                                                  : sum / rows;
}

} // namespace rtrain::metric
