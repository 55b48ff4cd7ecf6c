// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of class metrics; names and defaults follow torchmetrics 1.9. Cost tier 0: std only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace rtrain::metric {

/// Averaging of scores over classes or labels.
enum class Average : unsigned char {
    micro,    ///< one score over all rows
    macro,    ///< the mean; classes that never occurred do not count
    weighted, ///< the mean, weighted by the rows of each class
    none      ///< no averaging: a score for each class
};

/// The classification task, and the rows that count.
///
/// Two classes (0 and 1) unless `num_classes` or `num_labels` is set: predictions and targets of
/// equal shape. `num_classes`: multiclass, predictions (N, C, ...) or class numbers (N, ...),
/// targets (N, ...). `num_labels`: multilabel, both (N, L, ...).
///
/// Floating-point predictions are probabilities. If a batch has one below 0 or above 1, it is
/// treated as logits: sigmoid is applied, or softmax for multiclass.
struct Classes {
    std::int64_t num_classes = 0; ///< at least 2 if set
    std::int64_t num_labels = 0;  ///< at least 2 if set
    /// Rows (or labels of a row) with this target do not count.
    std::optional<std::int64_t> ignore_index{};
};

/// Options of Accuracy, Precision, Recall and F1.
struct ScoreOptions {
    std::int64_t num_classes = 0;               ///< see Classes
    std::int64_t num_labels = 0;                ///< see Classes
    std::optional<std::int64_t> ignore_index{}; ///< targets that do not count
    Average average = Average::micro;           ///< how classes are combined
    /// With num_classes: a row counts as correct if its class is among the top_k highest scores.
    std::int64_t top_k = 1;
    /// Without num_classes: a probability above it predicts 1.
    double threshold = 0.5;
    /// Score of a class with a zero denominator. Accuracy uses 0.
    double zero_division = 0;
};

/// Normalization of a confusion matrix.
enum class Normalize : unsigned char {
    none,        ///< nothing: counts
    targets,     ///< each row by its sum: torchmetrics' "true"
    predictions, ///< each column by its sum: "pred"
    all          ///< by the number of rows
};

/// Options of ConfusionMatrix.
struct ConfusionOptions {
    std::int64_t num_classes = 0;               ///< see Classes
    std::int64_t num_labels = 0;                ///< see Classes
    std::optional<std::int64_t> ignore_index{}; ///< targets that do not count
    Normalize normalize = Normalize::none;      ///< normalization of the counts
    double threshold = 0.5; ///< without num_classes: a probability above predicts 1
};

/// Options of Auroc and AveragePrecision.
struct CurveOptions {
    std::int64_t num_classes = 0;               ///< see Classes
    std::int64_t num_labels = 0;                ///< see Classes
    std::optional<std::int64_t> ignore_index{}; ///< targets that do not count
    /// Average::micro requires num_labels. Two classes have a single score in any case.
    Average average = Average::macro;
    /// 0: exact; keeps every score and gathers them from all ranks. At least 2: the curve at that
    /// many evenly spaced thresholds from 0 to 1, in constant memory.
    std::int64_t thresholds = 0;
    /// Explicit thresholds, instead of their number.
    std::vector<double> threshold_values{};
};

/// Norm over the errors of bins.
enum class CalibrationNorm : unsigned char {
    l1, ///< their mean, weighted by rows
    l2, ///< the root of the mean of their squares
    max ///< the largest
};

/// Options of CalibrationError.
struct CalibrationOptions {
    std::int64_t num_classes = 0;               ///< see Classes; labels are not supported
    std::optional<std::int64_t> ignore_index{}; ///< targets that do not count
    std::int64_t bins = 15;                     ///< evenly spaced from 0 to 1; torchmetrics' n_bins
    CalibrationNorm norm = CalibrationNorm::l1; ///< norm over the errors of bins
};

} // namespace rtrain::metric
