// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metrics based on counts of predicted and target classes: Accuracy, Precision, Recall, F1 and
/// ConfusionMatrix. Counts are integers, so results are bit-identical for any distribution of rows
/// over ranks. Cost tier 0: std only.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/metric.hpp>
#include <rtrain/metric/options.hpp>

#include <cstddef>
#include <string>

namespace rtrain::metric {

/// Counts of correct and wrong predictions of one class.
struct Outcomes {
    double true_positives = 0;  ///< of this class, and predicted as it
    double false_positives = 0; ///< of a different class, but predicted as it
    double false_negatives = 0; ///< of this class, but predicted as another
    double true_negatives = 0;  ///< only for two classes and for labels

    /// True if the class occurs in predictions or targets.
    [[nodiscard]] bool is_seen() const noexcept {
        return true_positives + false_positives + false_negatives > 0;
    }
};

/// Counts outcomes; derived classes compute a score from them.
class OutcomeScore : public Comparison {
public:
    /// Throws Error [RT-V40, RT-V41, RT-V42].
    void update(const at::Tensor& predictions, const at::Tensor& targets) override;
    [[nodiscard]] Value compute() const override;

protected:
    /// Throws Error [RT-V43] for inconsistent options.
    OutcomeScore(std::string kind, const ScoreOptions& options);

    [[nodiscard]] virtual double score(const Outcomes& of) const = 0;
    /// True if a class contributes to Average::macro. With top_k, a class that was only predicted
    /// does not.
    [[nodiscard]] virtual bool takes_part(const Outcomes& of) const;
    [[nodiscard]] const ScoreOptions& options() const noexcept { return options_; }
    /// `part` / `whole`; options().zero_division if `whole` is zero.
    [[nodiscard]] double share(double part, double whole) const {
        return whole != 0 ? part / whole : options_.zero_division;
    }

private:
    [[nodiscard]] Outcomes outcomes(std::size_t of) const;
    void see(std::size_t of, bool is_predicted, bool is_target);

    ScoreOptions options_;
};

/// The share of rows whose class was predicted. For two classes and for labels, the share of
/// correct answers. With Average::macro and Average::weighted over classes, the share of each
/// class's rows.
class Accuracy final : public OutcomeScore {
public:
    /// Throws Error [RT-V43].
    explicit Accuracy(const ScoreOptions& options = {});

private:
    [[nodiscard]] double score(const Outcomes& of) const override;
};

/// The share of predictions of a class that are correct: TP / (TP + FP).
class Precision final : public OutcomeScore {
public:
    /// Throws Error [RT-V43].
    explicit Precision(const ScoreOptions& options = {}) : OutcomeScore("Precision", options) {}

private:
    [[nodiscard]] double score(const Outcomes& of) const override {
        return share(of.true_positives, of.true_positives + of.false_positives);
    }
};

/// The share of a class's rows that were predicted as it: TP / (TP + FN).
class Recall final : public OutcomeScore {
public:
    /// Throws Error [RT-V43].
    explicit Recall(const ScoreOptions& options = {}) : OutcomeScore("Recall", options) {}

private:
    [[nodiscard]] double score(const Outcomes& of) const override {
        return share(of.true_positives, of.true_positives + of.false_negatives);
    }
};

/// The harmonic mean of Precision and Recall.
class F1 final : public OutcomeScore {
public:
    /// Throws Error [RT-V43].
    explicit F1(const ScoreOptions& options = {}) : OutcomeScore("F1", options) {}

private:
    [[nodiscard]] bool takes_part(const Outcomes& of) const override { return of.is_seen(); }
    [[nodiscard]] double score(const Outcomes& of) const override {
        const double right = 2 * of.true_positives;
        return share(right, right + of.false_negatives + of.false_positives);
    }
};

/// Counts rows by target class (row) and predicted class (column): shape (C, C), for two classes
/// (2, 2), for labels (L, 2, 2).
class ConfusionMatrix final : public Comparison {
public:
    /// Throws Error [RT-V43].
    explicit ConfusionMatrix(const ConfusionOptions& options = {});

    /// Throws Error [RT-V40, RT-V41, RT-V42].
    void update(const at::Tensor& predictions, const at::Tensor& targets) override;
    /// A division by zero gives 0.
    [[nodiscard]] Value compute() const override;

private:
    ConfusionOptions options_;
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/classification_definitions.hpp>
#endif
