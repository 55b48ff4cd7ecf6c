// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metrics of plain numbers, such as losses: Mean, Sum, Min and Max. Cost tier 0: std only.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/metric.hpp>

#include <string>

namespace rtrain::metric {

/// What becomes of a NaN.
enum class Nan : unsigned char {
    keep,   ///< the value is NaN
    ignore, ///< it is left out
    error   ///< update() throws Error [RT-V42]
};

/// How Mean, Sum, Min and Max take values.
struct AggregateOptions {
    Nan nan = Nan::keep; ///< what a NaN among them does
};

/// What the four have in common. Numbers of a tensor count one by one, whatever its shape; one on a
/// GPU is waited for.
class Aggregate : public Metric {
protected:
    Aggregate(std::string kind, Tally seen, const AggregateOptions& options);

    /// Whether a number counts. Throws Error [RT-V42].
    [[nodiscard]] bool takes(double value) const;

private:
    AggregateOptions options_;
};

/// The mean of numbers, each as often as its weight says. NaN when there was none.
class Mean final : public Aggregate {
public:
    explicit Mean(const AggregateOptions& options = {});

    /// For example a batch's mean loss, and the rows of the batch.
    void update(double value, double weight = 1);
    void update(const at::Tensor& values, double weight = 1);
    /// Weights that broadcast to the values. Throws Error [RT-V40].
    void update(const at::Tensor& values, const at::Tensor& weights);
    [[nodiscard]] Value compute() const override;
};

/// The sum of all values.
class Sum final : public Aggregate {
public:
    explicit Sum(const AggregateOptions& options = {});

    void update(double value);
    void update(const at::Tensor& values); ///< takes all elements of a tensor
    [[nodiscard]] Value compute() const override;
};

/// The least number; infinity when there was none.
class Min final : public Aggregate {
public:
    explicit Min(const AggregateOptions& options = {});

    void update(double value);
    void update(const at::Tensor& values); ///< takes all elements of a tensor
    [[nodiscard]] Value compute() const override;
};

/// The greatest number; minus infinity when there was none.
class Max final : public Aggregate {
public:
    explicit Max(const AggregateOptions& options = {});

    void update(double value);
    void update(const at::Tensor& values); ///< takes all elements of a tensor
    [[nodiscard]] Value compute() const override;
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/aggregates_definitions.hpp>
#endif
