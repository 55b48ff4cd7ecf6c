// SPDX-License-Identifier: Apache-2.0
/// @file
/// What metrics of classes can be asked for; names and defaults follow torchmetrics 1.9.
/// Cost tier 0: std only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace rtrain::metric {

/// How the scores of classes, or labels, become one.
enum class Average : unsigned char {
    micro,    ///< the score of all rows together
    macro,    ///< the mean; classes that nothing was seen of do not count
    weighted, ///< the mean, weighted by the rows that are of each class
    none      ///< they do not: a score each
};

/// What kind of classes there are, and which rows count.
///
/// Two classes (0 and 1) unless `num_classes` or `num_labels` is set: predictions and targets of
/// one shape. `num_classes`: one of many, predictions (N, C, ...) or class numbers (N, ...),
/// targets (N, ...). `num_labels`: each label is there or not, both (N, L, ...).
///
/// Predictions of floating point are probabilities; a batch that has one below 0 or above 1 is
/// taken for logits, and gets sigmoid, or softmax where there are classes.
struct Classes {
    std::int64_t num_classes = 0; ///< at least 2 if set
    std::int64_t num_labels = 0;  ///< at least 2 if set
    /// Rows (or labels of a row) with this target do not count.
    std::optional<std::int64_t> ignore_index{};
};

/// Of Accuracy, Precision, Recall and F1.
struct ScoreOptions {
    std::int64_t num_classes = 0;               ///< see Classes
    std::int64_t num_labels = 0;                ///< of a multilabel task
    std::optional<std::int64_t> ignore_index{}; ///< targets that do not count
    Average average = Average::micro;           ///< how classes are combined
    /// With num_classes: a row counts as predicted right when its class is among so many with the
    /// highest scores.
    std::int64_t top_k = 1;
    /// Without num_classes: a probability above says 1.
    double threshold = 0.5;
    /// The score of a class for which nothing can be divided. Accuracy takes 0.
    double zero_division = 0;
};

/// What a confusion matrix is divided by.
enum class Normalize : unsigned char {
    none,        ///< nothing: counts
    targets,     ///< each row by its sum: torchmetrics' "true"
    predictions, ///< each column by its sum: "pred"
    all          ///< by the number of rows
};

/// What ConfusionMatrix counts.
struct ConfusionOptions {
    std::int64_t num_classes = 0;               ///< see Classes
    std::int64_t num_labels = 0;                ///< of a multilabel task
    std::optional<std::int64_t> ignore_index{}; ///< targets that do not count
    Normalize normalize = Normalize::none;      ///< what counts are divided by
    double threshold = 0.5;                     ///< without num_classes: a probability above says 1
};

/// Of Auroc and AveragePrecision.
struct CurveOptions {
    std::int64_t num_classes = 0;               ///< see Classes
    std::int64_t num_labels = 0;                ///< of a multilabel task
    std::optional<std::int64_t> ignore_index{}; ///< targets that do not count
    /// Average::micro with num_labels only. Two classes have one score anyway.
    Average average = Average::macro;
    /// 0: exact, which keeps every score, and gathers them from all ranks. At least 2: the curve at
    /// so many thresholds, evenly from 0 to 1, in memory that does not grow.
    std::int64_t thresholds = 0;
    /// The thresholds themselves, instead of their number.
    std::vector<double> threshold_values{};
};

/// How the errors of bins become one.
enum class CalibrationNorm : unsigned char {
    l1, ///< their mean, weighted by rows
    l2, ///< the root of the mean of their squares
    max ///< the largest
};

/// What CalibrationError bins and adds up.
struct CalibrationOptions {
    std::int64_t num_classes = 0;               ///< see Classes; labels cannot be
    std::optional<std::int64_t> ignore_index{}; ///< targets that do not count
    std::int64_t bins = 15;                     ///< evenly from 0 to 1; torchmetrics' n_bins
    CalibrationNorm norm = CalibrationNorm::l1; ///< how bins' errors are combined
};

} // namespace rtrain::metric
