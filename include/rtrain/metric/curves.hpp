// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metrics of the curve that a threshold on scores draws: Auroc and AveragePrecision. Its points
/// are whole numbers, so values have the same bits however rows are dealt out to ranks.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/metric.hpp>
#include <rtrain/metric/options.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rtrain::metric {

/// How many rows have a score of at least each threshold, from the highest threshold on.
struct Curve {
    /// The outcomes at one threshold.
    struct Point {
        std::int64_t positives = 0; ///< rows of the class
        std::int64_t negatives = 0; ///< other rows
    };
    std::vector<Point> points; ///< from the highest threshold to the lowest
    Point all;                 ///< all rows
    bool is_exact = false;     ///< a point for each score that there is
};

/// Keeps scores, or counts them by thresholds; a score of its own makes a metric of their curves.
class CurveScore : public Comparison {
public:
    /// Throws Error [RT-V40, RT-V41, RT-V42].
    void update(const at::Tensor& predictions, const at::Tensor& targets) override;
    /// NaN when no row was seen.
    [[nodiscard]] Value compute() const override;

protected:
    /// Throws Error [RT-V43] for options that do not fit each other.
    CurveScore(std::string kind, const CurveOptions& options);

    /// NaN for a class without a score: it has no part in an average.
    [[nodiscard]] virtual double score(const Curve& curve) const = 0;
    [[nodiscard]] const CurveOptions& options() const noexcept { return options_; }

private:
    [[nodiscard]] Curve curve(std::size_t begin, std::size_t end) const;
    [[nodiscard]] Curve exact_curve(std::size_t begin, std::size_t end) const;

    CurveOptions options_;
    std::vector<double> thresholds_; ///< rising; empty: exact
    std::size_t columns_;            ///< scores of a row
};

/// The area under the curve of true positives over false positives. Of a class that has no row, or
/// all of them, 0, as in torchmetrics.
class Auroc final : public CurveScore {
public:
    /// Throws Error [RT-V43].
    explicit Auroc(const CurveOptions& options = {}) : CurveScore("Auroc", options) {}

private:
    [[nodiscard]] double score(const Curve& curve) const override;
};

/// The mean of precision over recall, step by step. Of a class that has no row, NaN if it is one of
/// many and exact, else 0, as in torchmetrics.
class AveragePrecision final : public CurveScore {
public:
    /// Throws Error [RT-V43].
    explicit AveragePrecision(const CurveOptions& options = {})
        : CurveScore("AveragePrecision", options) {}

private:
    [[nodiscard]] double score(const Curve& curve) const override;
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/curves_definitions.hpp>
#endif
