// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metrics that count which class was predicted for which: Accuracy, Precision, Recall, F1 and
/// ConfusionMatrix. Counts are whole numbers, so values have the same bits however rows are dealt
/// out to ranks. Cost tier 0: std only.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/metric.hpp>
#include <rtrain/metric/options.hpp>

#include <cstddef>
#include <string>

namespace rtrain::metric {

/// What was right and wrong about one class.
struct Outcomes {
    double true_positives = 0;  ///< of this class, and said so
    double false_positives = 0; ///< of another class, but said so
    double false_negatives = 0; ///< of this class, but said otherwise
    double true_negatives = 0;  ///< of two classes, and of labels; else nobody needs them

    /// Whether the class was predicted, or there, at all.
    [[nodiscard]] bool is_seen() const noexcept {
        return true_positives + false_positives + false_negatives > 0;
    }
};

/// Counts outcomes; a score of its own makes a metric of them.
class OutcomeScore : public Comparison {
public:
    /// Throws Error [RT-V40, RT-V41, RT-V42].
    void update(const at::Tensor& predictions, const at::Tensor& targets) override;
    [[nodiscard]] Value compute() const override;

protected:
    /// Throws Error [RT-V43] for options that do not fit each other.
    OutcomeScore(std::string kind, const ScoreOptions& options);

    [[nodiscard]] virtual double score(const Outcomes& of) const = 0;
    /// Whether a class has a part in Average::macro. With top_k, one that was only predicted has
    /// none.
    [[nodiscard]] virtual bool takes_part(const Outcomes& of) const;
    [[nodiscard]] const ScoreOptions& options() const noexcept { return options_; }
    /// `part` of `whole`; options().zero_division when there is none.
    [[nodiscard]] double share(double part, double whole) const {
        return whole != 0 ? part / whole : options_.zero_division;
    }

private:
    [[nodiscard]] Outcomes outcomes(std::size_t of) const;
    void see(std::size_t of, bool is_predicted, bool is_target);

    ScoreOptions options_;
};

/// The share of rows whose class was predicted. Of two classes, and of labels: of answers that were
/// right. With Average::macro and Average::weighted of classes, the share of each class's rows.
class Accuracy final : public OutcomeScore {
public:
    /// Throws Error [RT-V43].
    explicit Accuracy(const ScoreOptions& options = {});

private:
    [[nodiscard]] double score(const Outcomes& of) const override;
};

/// Of what was predicted as a class, the share that is of it.
class Precision final : public OutcomeScore {
public:
    /// Throws Error [RT-V43].
    explicit Precision(const ScoreOptions& options = {}) : OutcomeScore("Precision", options) {}

private:
    [[nodiscard]] double score(const Outcomes& of) const override {
        return share(of.true_positives, of.true_positives + of.false_positives);
    }
};

/// Of what is of a class, the share that was predicted as it.
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

/// How many rows of each class (row) were predicted as each class (column): of shape (C, C), of
/// two classes (2, 2), of labels (L, 2, 2).
class ConfusionMatrix final : public Comparison {
public:
    /// Throws Error [RT-V43].
    explicit ConfusionMatrix(const ConfusionOptions& options = {});

    /// Throws Error [RT-V40, RT-V41, RT-V42].
    void update(const at::Tensor& predictions, const at::Tensor& targets) override;
    /// What would be divided by zero is 0.
    [[nodiscard]] Value compute() const override;

private:
    ConfusionOptions options_;
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/classification_definitions.hpp>
#endif
