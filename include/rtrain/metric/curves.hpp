// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metrics computed from a curve over score thresholds: Auroc and AveragePrecision. Its points are
/// integers, so results are bit-identical for any distribution of rows over ranks. Cost tier 0: std
/// only.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/metric.hpp>
#include <rtrain/metric/options.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rtrain::metric {

/// Counts of rows whose score reaches each threshold, from the highest threshold to the lowest.
struct Curve {
    /// The outcomes at one threshold.
    struct Point {
        std::int64_t positives = 0; ///< rows of the class
        std::int64_t negatives = 0; ///< other rows
    };
    std::vector<Point> points; ///< from the highest threshold to the lowest
    Point all;                 ///< all rows
    bool is_exact = false;     ///< one point for each distinct score
};

/// Keeps scores, or counts them by threshold; derived classes compute a score from the curve.
class CurveScore : public Comparison {
public:
    /// Throws Error [RT-V40, RT-V41, RT-V42].
    void update(const at::Tensor& predictions, const at::Tensor& targets) override;
    /// NaN without rows.
    [[nodiscard]] Value compute() const override;

protected:
    /// Throws Error [RT-V43] for inconsistent options.
    CurveScore(std::string kind, const CurveOptions& options);

    /// NaN for a class without a score: averages exclude it.
    [[nodiscard]] virtual double score(const Curve& curve) const = 0;
    [[nodiscard]] const CurveOptions& options() const noexcept { return options_; }

private:
    [[nodiscard]] Curve curve(std::size_t begin, std::size_t end) const;
    [[nodiscard]] Curve exact_curve(std::size_t begin, std::size_t end) const;

    CurveOptions options_;
    std::vector<double> thresholds_; ///< ascending; empty: exact
    std::size_t columns_;            ///< scores per row
};

/// Area under the ROC curve: true positives over false positives. 0 for a class that has no row, or
/// all of them, as in torchmetrics.
class Auroc final : public CurveScore {
public:
    /// Throws Error [RT-V43].
    explicit Auroc(const CurveOptions& options = {}) : CurveScore("Auroc", options) {}

private:
    [[nodiscard]] double score(const Curve& curve) const override;
};

/// The mean of precision over recall, step by step. For a class without rows, NaN if it is one of
/// several and exact, else 0, as in torchmetrics.
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
