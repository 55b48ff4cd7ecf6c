// SPDX-License-Identifier: Apache-2.0
/// @file
/// CalibrationError: whether predictions are right as often as they say. Cost tier 0: std only.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/metric.hpp>
#include <rtrain/metric/options.hpp>

namespace rtrain::metric {

/// Rows are put into bins by their confidence: of two classes, the probability of class 1; of more,
/// that of the class with the highest. A bin's error is the distance between its mean confidence
/// and the share of its rows that are of class 1, or of the class predicted.
class CalibrationError final : public Comparison {
public:
    /// Throws Error [RT-V43].
    explicit CalibrationError(const CalibrationOptions& options = {});

    /// Throws Error [RT-V40, RT-V41, RT-V42].
    void update(const at::Tensor& predictions, const at::Tensor& targets) override;
    /// NaN when no row was seen.
    [[nodiscard]] Value compute() const override;

private:
    CalibrationOptions options_;
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/calibration_definitions.hpp>
#endif
