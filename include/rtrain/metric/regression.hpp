// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metrics of predicted numbers: MeanSquaredError, MeanAbsoluteError and R2Score. NaN and
/// infinities go into the value as they are. Cost tier 0: std only.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/metric.hpp>

#include <cstdint>
#include <string>

namespace rtrain::metric {

/// Of MeanSquaredError and MeanAbsoluteError.
struct ErrorOptions {
    /// 1: one value for all numbers, whatever their shape. More: a value for each column of (N,
    /// outputs).
    std::int64_t num_outputs = 1;
    /// Of MeanSquaredError: false gives its root.
    bool squared = true;
};

/// Adds up what predictions and targets of equal shape differ by.
class MeanError : public Comparison {
public:
    /// Throws Error [RT-V40].
    void update(const at::Tensor& predictions, const at::Tensor& targets) override;
    /// NaN when nothing was seen.
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

/// How the scores of several outputs become one.
enum class MultiOutput : unsigned char {
    uniform_average,  ///< their mean
    raw_values,       ///< they do not: a score each
    variance_weighted ///< the mean, weighted by the targets' variance
};

/// What R2 is computed of.
struct R2Options {
    std::int64_t num_outputs = 1; ///< columns of predictions and targets (N, outputs); 1: also (N)
    std::int64_t adjusted = 0;    ///< independent regressors, for the adjusted score
    /// How outputs are combined.
    MultiOutput multioutput = MultiOutput::uniform_average;
};

/// The share of the targets' variance that predictions explain. As in scikit-learn, constant
/// targets give 1 where all predictions equal them, else 0. As in torchmetrics, too few rows for
/// `adjusted` give the plain score.
class R2Score final : public Comparison {
public:
    /// Throws Error [RT-V43].
    explicit R2Score(const R2Options& options = {});

    /// Throws Error [RT-V40].
    void update(const at::Tensor& predictions, const at::Tensor& targets) override;
    /// NaN when fewer than two rows were seen.
    [[nodiscard]] Value compute() const override;

private:
    R2Options options_;
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/regression_definitions.hpp>
#endif
