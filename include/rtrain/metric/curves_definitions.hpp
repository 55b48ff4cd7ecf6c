// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door curves.hpp.
#pragma once

#include <rtrain/metric/curves.hpp>
#include <rtrain/metric/inputs.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::metric {

RTRAIN_DOOR CurveScore::CurveScore(std::string kind, const CurveOptions& options)
    : Comparison(std::move(kind), {}), options_(options) {
    require_classes(label(), options.num_classes, options.num_labels);
    const auto& values = options.threshold_values;
    const bool are_given = !values.empty();
    if (options.thresholds < 0 || options.thresholds == 1 || (are_given && options.thresholds) ||
        !std::ranges::all_of(values, [](double value) { return value >= 0 && value <= 1; })) {
        throw wrong("RT-V43", "thresholds is ", options.thresholds, ", and threshold_values has ",
                    values.size(), "; set one: 0 (exact) or at least 2, or values from 0 to 1");
    }
    if (options.average == Average::micro && options.num_classes > 0) {
        throw wrong("RT-V43", "Average::micro is for labels; for classes, use macro, weighted or "
                              "none");
    }
    thresholds_ = values;
    for (std::int64_t i = 0; i < options.thresholds; ++i) {
        thresholds_.push_back(at::linspace(0, 1, options.thresholds)[i].item<double>());
    }
    for (double& threshold : thresholds_) {
        threshold = static_cast<float>(threshold); // torchmetrics compares in float
    }
    std::ranges::sort(thresholds_);
    columns_ = static_cast<std::size_t>(
        std::max({options.num_classes, options.num_labels, std::int64_t{1}}));
    if (!thresholds_.empty()) {
        tally().counts.resize(columns_ * 2 * (thresholds_.size() + 1));
    }
}

/// Exact: stores the row's scores, followed by its targets. With thresholds: for each score,
/// increments a histogram over the number of thresholds that it reaches.
RTRAIN_DOOR void CurveScore::update(const at::Tensor& predictions, const at::Tensor& targets) {
    const Inputs inputs(label(),
                        {options_.num_classes, options_.num_labels, options_.ignore_index});
    const auto [given, wanted] = inputs.scores(predictions, targets);
    const at::Tensor scores = given.to(at::kDouble);
    const auto* score = scores.const_data_ptr<double>();
    const auto* target = wanted.const_data_ptr<std::int64_t>();
    const std::size_t targets_of_row = options_.num_labels > 0 ? columns_ : 1;
    const std::size_t buckets = thresholds_.size() + 1;
    for (std::int64_t row = 0; row < scores.size(0); ++row) {
        if (thresholds_.empty()) {
            auto& samples = tally().samples;
            samples.insert(samples.end(), score, score + columns_);
            samples.insert(samples.end(), target, target + targets_of_row);
        }
        for (std::size_t column = 0; column < columns_ && !thresholds_.empty(); ++column) {
            const std::int64_t own = target[targets_of_row == 1 ? 0 : column];
            const bool is_positive =
                options_.num_classes > 0 ? own == static_cast<std::int64_t>(column) : own == 1;
            const auto reached = static_cast<std::size_t>(
                std::ranges::upper_bound(thresholds_, score[column]) - thresholds_.begin());
            if (!inputs.is_ignored(own)) {
                ++tally().counts[(2 * column + (is_positive ? 1 : 0)) * buckets + reached];
            }
        }
        score += columns_;
        target += targets_of_row;
    }
}

/// Returns the curve of columns `begin` to `end` - 1 combined.
RTRAIN_DOOR Curve CurveScore::curve(std::size_t begin, std::size_t end) const {
    if (thresholds_.empty()) {
        return exact_curve(begin, end);
    }
    Curve curve;
    curve.points.reserve(thresholds_.size());
    const std::size_t buckets = thresholds_.size() + 1;
    for (std::size_t reached = buckets; reached-- > 0;) {
        for (std::size_t column = begin; column < end; ++column) {
            curve.all.negatives += tally().counts[2 * column * buckets + reached];
            curve.all.positives += tally().counts[(2 * column + 1) * buckets + reached];
        }
        if (reached > 0) {
            curve.points.push_back(curve.all);
        }
    }
    return curve;
}

RTRAIN_DOOR Curve CurveScore::exact_curve(std::size_t begin, std::size_t end) const {
    struct Sample {
        double score = 0;
        bool is_positive = false;
    };
    std::vector<Sample> samples;
    const auto& kept = tally().samples;
    const std::size_t width = columns_ + (options_.num_labels > 0 ? columns_ : 1);
    for (std::size_t row = 0; row < kept.size(); row += width) {
        for (std::size_t column = begin; column < end; ++column) {
            const auto target = static_cast<std::int64_t>(
                kept[row + columns_ + (options_.num_labels > 0 ? column : 0)]);
            const auto positive = static_cast<std::int64_t>(options_.num_classes > 0 ? column : 1);
            if (target != options_.ignore_index) {
                samples.push_back({kept[row + column], target == positive});
            }
        }
    }
    std::ranges::sort(samples, std::greater{}, &Sample::score);
    Curve curve;
    curve.is_exact = true;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        ++(samples[i].is_positive ? curve.all.positives : curve.all.negatives);
        if (i + 1 == samples.size() || samples[i + 1].score != samples[i].score) {
            curve.points.push_back(curve.all);
        }
    }
    return curve;
}

RTRAIN_DOOR Value CurveScore::compute() const {
    const auto score_of = [&](const Curve& curve) {
        const bool is_empty = curve.all.positives + curve.all.negatives == 0;
        return is_empty ? std::numeric_limits<double>::quiet_NaN() : score(curve);
    };
    if (columns_ == 1 || options_.average == Average::micro) {
        return score_of(curve(0, columns_));
    }
    std::vector<double> scores;
    double sum = 0;
    double weights = 0;
    for (std::size_t column = 0; column < columns_; ++column) {
        const Curve of_column = curve(column, column + 1);
        scores.push_back(score_of(of_column));
        if (!std::isnan(scores.back())) {
            const double weight = options_.average == Average::weighted
                                      ? static_cast<double>(of_column.all.positives)
                                      : 1;
            sum += weight * scores.back();
            weights += weight;
        }
    }
    if (options_.average == Average::none) {
        return {std::move(scores), {static_cast<std::int64_t>(columns_)}};
    }
    const bool has_none = options_.average == Average::macro;
    return weights != 0 || has_none ? sum / weights : 0;
}

RTRAIN_DOOR double Auroc::score(const Curve& curve) const {
    if (curve.all.positives == 0 || curve.all.negatives == 0) {
        return 0;
    }
    std::int64_t area = 0; // doubled; in rows × rows
    Curve::Point last = curve.is_exact ? Curve::Point{} : curve.points.front();
    for (const Curve::Point& point : curve.points) {
        area += (point.negatives - last.negatives) * (point.positives + last.positives);
        last = point;
    }
    return static_cast<double>(area) / 2 / static_cast<double>(curve.all.positives) /
           static_cast<double>(curve.all.negatives);
}

RTRAIN_DOOR double AveragePrecision::score(const Curve& curve) const {
    if (curve.all.positives == 0) {
        return curve.is_exact && options().num_classes > 0
                   ? std::numeric_limits<double>::quiet_NaN()
                   : 0;
    }
    double sum = 0;
    std::int64_t last = 0;
    for (const auto& [positives, negatives] : curve.points) {
        if (positives > last) {
            sum += static_cast<double>(positives - last) * static_cast<double>(positives) /
                   static_cast<double>(positives + negatives);
        }
        last = positives;
    }
    return sum / static_cast<double>(curve.all.positives);
}

} // namespace rtrain::metric
