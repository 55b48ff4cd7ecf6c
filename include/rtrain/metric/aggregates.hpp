// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metrics of plain numbers, such as losses: Mean, Sum, Min and Max. Cost tier 0: std only.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/metric.hpp>

#include <string>

namespace rtrain::metric {

/// Handling of NaN values.
enum class Nan : unsigned char {
    keep,   ///< the value is NaN
    ignore, ///< the NaN is ignored
    error   ///< update() throws Error [RT-V42]
};

/// Options of Mean, Sum, Min and Max.
struct AggregateOptions {
    Nan nan = Nan::keep; ///< handling of NaN values
};

/// Common base of Mean, Sum, Min and Max. Each element of a tensor counts as one value, whatever
/// its shape. Blocks until a tensor on a GPU is ready.
class Aggregate : public Metric {
protected:
    Aggregate(std::string kind, Tally seen, const AggregateOptions& options);

    /// True if a value counts. Throws Error [RT-V42].
    [[nodiscard]] bool takes(double value) const;

private:
    AggregateOptions options_;
};

/// The weighted mean of values. NaN without values.
class Mean final : public Aggregate {
public:
    explicit Mean(const AggregateOptions& options = {});

    /// For example a batch's mean loss, and the rows of the batch.
    void update(double value, double weight = 1);
    void update(const at::Tensor& values, double weight = 1);
    /// `weights` must broadcast to the values. Throws Error [RT-V40].
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

/// The smallest value; infinity without values.
class Min final : public Aggregate {
public:
    explicit Min(const AggregateOptions& options = {});

    void update(double value);
    void update(const at::Tensor& values); ///< takes all elements of a tensor
    [[nodiscard]] Value compute() const override;
};

/// The largest value; minus infinity without values.
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
