// SPDX-License-Identifier: Apache-2.0
/// @file
/// Predictions and targets prepared for class metrics: validated, on the CPU, row by row. For
/// definitions only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/metric/options.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>

namespace rtrain::metric {

/// Validates and converts the inputs of a metric with these options.
class Inputs {
public:
    /// `label`: the name of the metric in errors.
    Inputs(const std::string& label, Classes classes) : label_(label), classes_(classes) {}

    /// Class numbers, at::kLong and contiguous on the CPU, by row; for labels, by row and label.
    struct Labels {
        at::Tensor predicted;
        at::Tensor targets;
    };
    /// Throws Error [RT-V40, RT-V41, RT-V42].
    [[nodiscard]] Labels labels(const at::Tensor& predictions, const at::Tensor& targets,
                                double threshold, std::int64_t top_k = 1) const;

    /// Probabilities of shape (rows, columns()), from logits in double, and the targets of the rows
    /// (for labels, of each label); on the CPU, contiguous. Rows to ignore are removed; labels to
    /// ignore are not. Throws Error [RT-V40, RT-V41, RT-V42].
    struct Scores {
        at::Tensor probabilities;
        at::Tensor targets;
    };
    [[nodiscard]] Scores scores(const at::Tensor& predictions, const at::Tensor& targets) const;

    /// Number of scores per row.
    [[nodiscard]] std::int64_t columns() const {
        return std::max({classes_.num_classes, classes_.num_labels, std::int64_t{1}});
    }
    [[nodiscard]] bool is_ignored(std::int64_t target) const {
        return target == classes_.ignore_index;
    }

private:
    /// Throws Error [RT-V40] unless shapes and types fit; returns whether predictions are scores.
    bool require_shapes(const at::Tensor& predictions, const at::Tensor& targets) const;
    /// Returns at::kLong on the CPU. Throws Error [RT-V41] for an invalid class.
    [[nodiscard]] at::Tensor require_targets(const at::Tensor& targets) const {
        return require_range(targets, "target", classes_.ignore_index);
    }
    [[nodiscard]] at::Tensor require_range(const at::Tensor& of, const char* what,
                                           std::optional<std::int64_t> besides = {}) const;
    /// Converts scores (..., columns()). Torch's own functions can give equal logits different
    /// bits, depending on their position in a batch, which would change the curves.
    [[nodiscard]] at::Tensor probabilities(const at::Tensor& scores) const;
    /// Computes the softmax of a row of logits in place.
    static void soften(std::span<double> row) {
        const double most = std::ranges::max(row);
        double sum = 0;
        for (double& logit : row) {
            logit = std::exp(logit - most);
            sum += logit;
        }
        for (double& part : row) {
            part /= sum;
        }
    }
    [[nodiscard]] at::Tensor best(const at::Tensor& scores, const at::Tensor& targets,
                                  std::int64_t top_k) const;

    template <class... Parts>
    [[nodiscard]] Error wrong(Error::Code code, const Parts&... parts) const {
        return {code, rtrain::detail::concat(label_, ": ", parts...)};
    }

    const std::string& label_;
    Classes classes_;
};

/// Throws Error [RT-V43] for invalid numbers of classes.
inline void require_classes(const std::string& label, std::int64_t num_classes,
                            std::int64_t num_labels) {
    if ((num_classes != 0 && num_classes < 2) || (num_labels != 0 && num_labels < 2) ||
        (num_classes != 0 && num_labels != 0)) {
        throw Error("RT-V43",
                    rtrain::detail::concat(label, ": num_classes is ", num_classes, ", num_labels ",
                                           num_labels,
                                           "; set one of them, to 2 or more, or none for the "
                                           "classes 0 and 1"));
    }
}

inline bool Inputs::require_shapes(const at::Tensor& predictions, const at::Tensor& targets) const {
    if (targets.is_floating_point() || targets.is_complex() || predictions.is_complex()) {
        throw wrong("RT-V40", "targets are ", targets.scalar_type(), " and predictions ",
                    predictions.scalar_type(), "; expected integers as targets");
    }
    if (classes_.num_classes == 0) {
        const bool has_labels = classes_.num_labels == 0 ||
                                (targets.dim() >= 2 && targets.size(1) == classes_.num_labels);
        if (predictions.sizes() != targets.sizes() || !has_labels) {
            throw wrong("RT-V40", "predictions have shape ", predictions.sizes(), ", targets ",
                        targets.sizes(), "; expected ",
                        classes_.num_labels == 0 ? "equal shapes" : "both as (N, num_labels, ...)");
        }
        return predictions.is_floating_point();
    }
    if (predictions.sizes() == targets.sizes() && !predictions.is_floating_point()) {
        return false;
    }
    auto shape = targets.sizes().vec();
    shape.insert(shape.begin() + std::min<std::ptrdiff_t>(1, targets.dim()), classes_.num_classes);
    if (targets.dim() == 0 || predictions.sizes() != shape || !predictions.is_floating_point()) {
        throw wrong("RT-V40", "predictions are ", predictions.scalar_type(), " of shape ",
                    predictions.sizes(), ", targets have ", targets.sizes(),
                    "; expected scores (N, ", classes_.num_classes,
                    ", ...) or class numbers (N, ...), and targets (N, ...)");
    }
    return true;
}

inline at::Tensor Inputs::require_range(const at::Tensor& of, const char* what,
                                        std::optional<std::int64_t> besides) const {
    at::Tensor numbers = of.to(at::kCPU, at::kLong).contiguous();
    const std::int64_t classes = std::max(classes_.num_classes, std::int64_t{2});
    const auto* const begin = numbers.const_data_ptr<std::int64_t>();
    const auto* const end = begin + numbers.numel();
    const auto* const bad = std::find_if(begin, end, [&](std::int64_t number) {
        return (number < 0 || number >= classes) && number != besides;
    });
    if (bad != end) {
        throw wrong("RT-V41", what, " number ", bad - begin, " is class ", *bad, "; expected 0 to ",
                    classes - 1);
    }
    return numbers;
}

inline at::Tensor Inputs::probabilities(const at::Tensor& scores) const {
    if (scores.numel() == 0) {
        return scores;
    }
    const auto [least, most] = at::aminmax(scores);
    const auto low = least.item<double>();
    const auto high = most.item<double>();
    if (std::isnan(low) || std::isnan(high)) {
        throw wrong("RT-V42", "predictions have NaN; a score must be a number");
    }
    if (low >= 0 && high <= 1) {
        return scores;
    }
    at::Tensor all = scores.to(at::kCPU, at::kDouble).contiguous().clone();
    const std::span numbers(all.mutable_data_ptr<double>(), static_cast<std::size_t>(all.numel()));
    if (classes_.num_classes == 0) {
        std::ranges::transform(numbers, numbers.begin(),
                               [](double logit) { return 1 / (1 + std::exp(-logit)); });
        return all;
    }
    const auto width = static_cast<std::size_t>(columns());
    for (std::size_t row = 0; row < numbers.size(); row += width) {
        soften(numbers.subspan(row, width));
        if (std::isnan(numbers[row])) {
            throw wrong("RT-V42", "a row has infinite logits, which have no probabilities");
        }
    }
    return all;
}

/// The predicted class: the target if it is among the top_k, else the class with the highest score.
inline at::Tensor Inputs::best(const at::Tensor& scores, const at::Tensor& targets,
                               std::int64_t top_k) const {
    if (scores.numel() > 0 && scores.isnan().any().item<bool>()) {
        throw wrong("RT-V42", "predictions have NaN; a score must be a number");
    }
    if (top_k == 1) {
        return scores.argmax(1);
    }
    const at::Tensor best = std::get<1>(scores.topk(top_k, 1));
    const at::Tensor wanted = targets.to(best.device(), at::kLong);
    return at::where(best.eq(wanted.unsqueeze(1)).any(1), wanted, best.select(1, 0));
}

inline Inputs::Labels Inputs::labels(const at::Tensor& predictions, const at::Tensor& targets,
                                     double threshold, std::int64_t top_k) const {
    const c10::NoGradGuard no_grad;
    const bool is_scored = require_shapes(predictions, targets);
    Labels labels{predictions, targets};
    if (is_scored && classes_.num_classes > 0) {
        labels.predicted = best(predictions, targets, top_k);
    } else if (is_scored) {
        labels.predicted = probabilities(predictions).gt(threshold);
    }
    if (classes_.num_labels > 0) {
        labels.predicted = labels.predicted.movedim(1, -1);
        labels.targets = targets.movedim(1, -1);
    }
    return {require_range(labels.predicted, "prediction"), require_targets(labels.targets)};
}

inline Inputs::Scores Inputs::scores(const at::Tensor& predictions,
                                     const at::Tensor& targets) const {
    const c10::NoGradGuard no_grad;
    if (!require_shapes(predictions, targets)) {
        throw wrong("RT-V40", "predictions are ", predictions.scalar_type(),
                    "; expected floating-point scores");
    }
    const bool has_columns = columns() > 1;
    at::Tensor rows = has_columns ? predictions.movedim(1, -1).reshape({-1, columns()})
                                  : predictions.reshape({-1, 1});
    at::Tensor wanted =
        require_targets(classes_.num_labels > 0 ? targets.movedim(1, -1).reshape({-1, columns()})
                                                : targets.reshape({-1}));
    if (classes_.ignore_index && classes_.num_labels == 0) {
        const at::Tensor counts = wanted.ne(*classes_.ignore_index);
        rows = rows.index({counts.to(rows.device())});
        wanted = wanted.index({counts});
    }
    return {probabilities(rows).cpu().contiguous(), wanted};
}

} // namespace rtrain::metric
