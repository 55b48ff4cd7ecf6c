// SPDX-License-Identifier: Apache-2.0
/// @file
/// BatchWeight: how much the gradients of a rank count, where ranks have batches of different
/// sizes.
#pragma once

#include <rtrain/data/loops.hpp>
#include <rtrain/model/buckets.hpp>
#include <rtrain/model/recording.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <memory>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// A mean over ranks of means over their rows is the mean over all rows when each is multiplied by
/// this weight: see data::Steps::weight().
class BatchWeight {
public:
    /// Of the loops of this thread, also where backward runs in another. `parameters` outlive it.
    explicit BatchWeight(const std::vector<NamedParameter>& parameters) : parameters_(parameters) {}

    [[nodiscard]] double value() const noexcept { return value_; }

    /// Takes the weight of the batch that the loop has; 1 unless it `applies`. What parameters have
    /// of passes under no_sync() is going to be multiplied by it, too: undoes that.
    void follow(bool applies) {
        const double here = applies ? data::Loops::current().weight() : 1;
        const double before = std::exchange(value_, applies && here == 1 ? loops_->weight() : here);
        if (!accumulated_ || before == value_) {
            return;
        }
        const c10::NoGradGuard no_grad;
        for (const auto& [name, parameter] : parameters_) {
            if (at::Tensor& gradient = parameter.mutable_grad(); gradient.defined()) {
                gradient.mul_(before / value_);
            }
        }
    }
    /// For a captured step. Throws ModelError [RT-M70].
    void require_even(bool applies) {
        follow(applies);
        if (value_ != 1) {
            throw_not_capturable("ranks have batches of different sizes, and a graph weights them "
                                 "alike; drop the last batches (BatchOptions::drop_last)");
        }
    }
    /// A pass under no_sync() leaves its gradients with the parameters.
    void accumulate() noexcept { accumulated_ = true; }
    /// Gradients are averaged: the same on all ranks, whatever their weights.
    void end_pass() noexcept { accumulated_ = false; }

private:
    const std::vector<NamedParameter>& parameters_;
    std::shared_ptr<const data::Loops> loops_ = data::Loops::shared();
    double value_ = 1;
    bool accumulated_ = false;
};

} // namespace rtrain::detail
