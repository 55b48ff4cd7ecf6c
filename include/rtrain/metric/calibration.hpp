// SPDX-License-Identifier: Apache-2.0
/// @file
/// CalibrationError: compares confidence with accuracy. Cost tier 0: std only.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/metric.hpp>
#include <rtrain/metric/options.hpp>

namespace rtrain::metric {

/// Bins rows by confidence: the probability of class 1 for two classes, the highest probability for
/// more. The error of a bin is the difference between its mean confidence and the share of its rows
/// in class 1, or in the predicted class.
class CalibrationError final : public Comparison {
public:
    /// Throws Error [RT-V43].
    explicit CalibrationError(const CalibrationOptions& options = {});

    /// Throws Error [RT-V40, RT-V41, RT-V42].
    void update(const at::Tensor& predictions, const at::Tensor& targets) override;
    /// NaN without rows.
    [[nodiscard]] Value compute() const override;

private:
    CalibrationOptions options_;
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/calibration_definitions.hpp>
#endif
