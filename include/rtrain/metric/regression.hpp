// SPDX-License-Identifier: Apache-2.0
/// @file
/// Regression metrics: MeanSquaredError, MeanAbsoluteError and R2Score. NaN and infinities
/// propagate to the value. Cost tier 0: std only.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/metric.hpp>

#include <cstdint>
#include <string>

namespace rtrain::metric {

/// Options of MeanSquaredError and MeanAbsoluteError.
struct ErrorOptions {
    /// 1: one value over all elements, whatever their shape. More: a value for each column of (N,
    /// outputs).
    std::int64_t num_outputs = 1;
    /// For MeanSquaredError: false returns the root.
    bool squared = true;
};

/// Accumulates the differences of predictions and targets, which have equal shapes.
class MeanError : public Comparison {
public:
    /// Throws Error [RT-V40].
    void update(const at::Tensor& predictions, const at::Tensor& targets) override;
    /// NaN without elements.
    [[nodiscard]] Value compute() const override;

protected:
    /// Throws Error [RT-V43].
    MeanError(std::string kind, const ErrorOptions& options);

    [[nodiscard]] virtual double error(double difference) const = 0;

private:
    ErrorOptions options_;
};

/// The mean of squared differences, or its root.
class MeanSquaredError final : public MeanError {
public:
    /// Throws Error [RT-V43].
    explicit MeanSquaredError(const ErrorOptions& options = {})
        : MeanError("MeanSquaredError", options) {}

private:
    [[nodiscard]] double error(double difference) const override { return difference * difference; }
};

/// The mean of absolute differences.
class MeanAbsoluteError final : public MeanError {
public:
    /// `squared` must stay true. Throws Error [RT-V43].
    explicit MeanAbsoluteError(const ErrorOptions& options = {});

private:
    [[nodiscard]] double error(double difference) const override {
        return difference < 0 ? -difference : difference;
    }
};

/// Averaging of scores over outputs.
enum class MultiOutput : unsigned char {
    uniform_average,  ///< their mean
    raw_values,       ///< no averaging: a score for each output
    variance_weighted ///< the mean, weighted by the targets' variance
};

/// Options of R2Score.
struct R2Options {
    std::int64_t num_outputs = 1; ///< columns of predictions and targets (N, outputs); 1: also (N)
    std::int64_t adjusted = 0;    ///< number of independent regressors, for adjusted R²
    /// Averaging over outputs.
    MultiOutput multioutput = MultiOutput::uniform_average;
};

/// The share of the targets' variance that predictions explain. As in scikit-learn, constant
/// targets give 1 if all predictions equal them, else 0. As in torchmetrics, too few rows for
/// `adjusted` give the plain score.
class R2Score final : public Comparison {
public:
    /// Throws Error [RT-V43].
    explicit R2Score(const R2Options& options = {});

    /// Throws Error [RT-V40].
    void update(const at::Tensor& predictions, const at::Tensor& targets) override;
    /// NaN with fewer than two rows.
    [[nodiscard]] Value compute() const override;

private:
    R2Options options_;
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/regression_definitions.hpp>
#endif
