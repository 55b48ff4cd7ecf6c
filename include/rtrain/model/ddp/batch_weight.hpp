// SPDX-License-Identifier: Apache-2.0
/// @file
/// BatchWeight: the weight of a rank's gradients, where ranks have batches of different sizes.
#pragma once

#include <rtrain/data/loops.hpp>
#include <rtrain/model/parameters/buckets.hpp>
#include <rtrain/model/parameters/recording.hpp>

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
    /// Follows the loops of this thread, also where backward runs in another. `parameters` outlive
    /// this object.
    explicit BatchWeight(const std::vector<NamedParameter>& parameters) : parameters_(parameters) {}

    [[nodiscard]] double value() const noexcept { return value_; }

    /// Sets the weight to that of the loop's current batch; 1 unless it `applies`. Compensates for
    /// it in gradients accumulated under no_sync(), which will also be multiplied by it.
    void follow(bool applies) {
        const double here = applies ? data::LoopStack::current().weight() : 1;
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
    /// Throws ModelError [RT-M70] unless the weight is 1; for a captured step.
    void require_even(bool applies) {
        follow(applies);
        if (value_ != 1) {
            throw_not_capturable("ranks have batches of different sizes, and a graph weights them "
                                 "alike; drop the last batches (BatchOptions::drop_last)");
        }
    }
    /// Called after a pass under no_sync(), which leaves its gradients with the parameters.
    void accumulate() noexcept { accumulated_ = true; }
    /// Called once gradients are averaged: they are the same on all ranks, whatever their weights.
    void end_pass() noexcept { accumulated_ = false; }

private:
    const std::vector<NamedParameter>& parameters_;
    std::shared_ptr<const data::LoopStack> loops_ = data::LoopStack::shared();
    double value_ = 1;
    bool accumulated_ = false;
};

} // namespace rtrain::detail
