// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door classification.hpp.
#pragma once

#include <rtrain/metric/classification.hpp>
#include <rtrain/metric/inputs.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::metric {

RTRAIN_DOOR OutcomeScore::OutcomeScore(std::string kind, const ScoreOptions& options)
    : Comparison(std::move(kind), {}), options_(options) {
    require_classes(label(), options.num_classes, options.num_labels);
    if (options.top_k != 1 && (options.top_k < 1 || options.top_k > options.num_classes)) {
        throw wrong("RT-V43", "top_k is ", options.top_k, "; expected 1 to num_classes, which is ",
                    options.num_classes);
    }
    const std::int64_t scored =
        options.average == Average::micro
            ? 1
            : std::max({options.num_classes, options.num_labels, std::int64_t{1}});
    tally().counts.resize(static_cast<std::size_t>(4 * scored));
}

RTRAIN_DOOR Outcomes OutcomeScore::outcomes(std::size_t of) const {
    const auto* const counts = &tally().counts[4 * of];
    return {static_cast<double>(counts[0]), static_cast<double>(counts[1]),
            static_cast<double>(counts[2]), static_cast<double>(counts[3])};
}

/// Counts a row for class `of`, given whether it was predicted as it and is of it.
RTRAIN_DOOR void OutcomeScore::see(std::size_t of, bool is_predicted, bool is_target) {
    const std::size_t outcome = is_target ? (is_predicted ? 0 : 2) : (is_predicted ? 1 : 3);
    ++tally().counts[4 * of + outcome];
}

RTRAIN_DOOR void OutcomeScore::update(const at::Tensor& predictions, const at::Tensor& targets) {
    const Inputs inputs(label(),
                        {options_.num_classes, options_.num_labels, options_.ignore_index});
    const auto [predicted, wanted] =
        inputs.labels(predictions, targets, options_.threshold, options_.top_k);
    const auto* const prediction = predicted.const_data_ptr<std::int64_t>();
    const auto* const target = wanted.const_data_ptr<std::int64_t>();
    const std::size_t scored = tally().counts.size() / 4; // 1: all classes together
    const auto count = static_cast<std::size_t>(wanted.numel());
    for (std::size_t i = 0; i < count; ++i) {
        if (inputs.is_ignored(target[i])) {
            continue;
        }
        if (options_.num_classes == 0) {
            see(i % scored, prediction[i] == 1, target[i] == 1);
        } else if (prediction[i] == target[i]) {
            see(static_cast<std::size_t>(target[i]) % scored, true, true);
        } else {
            see(static_cast<std::size_t>(prediction[i]) % scored, true, false);
            see(static_cast<std::size_t>(target[i]) % scored, false, true);
        }
    }
}

RTRAIN_DOOR bool OutcomeScore::takes_part(const Outcomes& of) const {
    return options_.num_classes == 0 ||
           (options_.top_k == 1 ? of.is_seen() : of.true_positives + of.false_negatives > 0);
}

RTRAIN_DOOR Value OutcomeScore::compute() const {
    const std::size_t scored = tally().counts.size() / 4;
    std::vector<double> scores;
    double sum = 0;
    double weights = 0;
    for (std::size_t i = 0; i < scored; ++i) {
        const Outcomes of = outcomes(i);
        scores.push_back(score(of));
        const double rows = of.true_positives + of.false_negatives;
        const double weight = options_.average == Average::weighted ? rows : takes_part(of) ? 1 : 0;
        sum += weight * scores.back();
        weights += weight;
    }
    if (scored == 1) {
        return scores.front();
    }
    if (options_.average == Average::none) {
        const auto shape = static_cast<std::int64_t>(scored);
        return {std::move(scores), {shape}};
    }
    return weights != 0 ? sum / weights : 0;
}

RTRAIN_DOOR Accuracy::Accuracy(const ScoreOptions& options) : OutcomeScore("Accuracy", options) {}

RTRAIN_DOOR double Accuracy::score(const Outcomes& of) const {
    const double negatives = options().num_classes == 0 ? of.true_negatives : 0;
    const double wrong_positives = options().num_classes == 0 ? of.false_positives : 0;
    const double right = of.true_positives + negatives;
    const double all = right + wrong_positives + of.false_negatives;
    return all != 0 ? right / all : 0;
}

RTRAIN_DOOR ConfusionMatrix::ConfusionMatrix(const ConfusionOptions& options)
    : Comparison("ConfusionMatrix", {}), options_(options) {
    require_classes(label(), options.num_classes, options.num_labels);
    const std::int64_t cells = options.num_classes > 0
                                   ? options.num_classes * options.num_classes
                                   : 4 * std::max(options.num_labels, std::int64_t{1});
    tally().counts.resize(static_cast<std::size_t>(cells));
}

RTRAIN_DOOR void ConfusionMatrix::update(const at::Tensor& predictions, const at::Tensor& targets) {
    const Inputs inputs(label(),
                        {options_.num_classes, options_.num_labels, options_.ignore_index});
    const auto [predicted, wanted] = inputs.labels(predictions, targets, options_.threshold);
    const auto* const prediction = predicted.const_data_ptr<std::int64_t>();
    const auto* const target = wanted.const_data_ptr<std::int64_t>();
    const std::int64_t classes = std::max(options_.num_classes, std::int64_t{2});
    const std::int64_t labels = std::max(options_.num_labels, std::int64_t{1});
    for (std::int64_t i = 0; i < wanted.numel(); ++i) {
        if (!inputs.is_ignored(target[i])) {
            const std::int64_t row = i % labels * classes + target[i];
            ++tally().counts[static_cast<std::size_t>(row * classes + prediction[i])];
        }
    }
}

RTRAIN_DOOR Value ConfusionMatrix::compute() const {
    const std::int64_t classes = std::max(options_.num_classes, std::int64_t{2});
    std::vector<std::int64_t> shape{classes, classes};
    if (options_.num_labels > 0) {
        shape.insert(shape.begin(), options_.num_labels);
    }
    const auto& counts = tally().counts;
    if (options_.normalize == Normalize::none) {
        return {counts, std::move(shape)};
    }
    const auto width = static_cast<std::size_t>(classes);
    std::vector<std::int64_t> wholes(
        counts.size()); // sums are stored at the first cell of each group
    const auto whole_of = [&](std::size_t cell) {
        const std::size_t matrix = cell / (width * width) * width * width;
        return options_.normalize == Normalize::targets       ? cell / width * width
               : options_.normalize == Normalize::predictions ? matrix + cell % width
                                                              : matrix;
    };
    for (std::size_t cell = 0; cell < counts.size(); ++cell) {
        wholes[whole_of(cell)] += counts[cell];
    }
    std::vector<double> shares(counts.size());
    for (std::size_t cell = 0; cell < counts.size(); ++cell) {
        const auto whole = static_cast<double>(wholes[whole_of(cell)]);
        shares[cell] = whole > 0 ? static_cast<double>(counts[cell]) / whole : 0;
    }
    return {std::move(shares), std::move(shape)};
}

} // namespace rtrain::metric
