// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a bucket of gradients becomes the mean over ranks: the interface that the averager drives,
/// and the plain way. The others are in hooks/ and tree_sum.hpp.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/model/hooks/gradient_hook.hpp>

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <utility>

namespace rtrain::detail {

/// Drives one bucket, pass after pass. start() and wait() are called by all ranks in the same
/// order, poll() at any time between them; so only start() and wait() may begin to communicate.
class BucketReduction {
public:
    BucketReduction() = default;
    BucketReduction(const BucketReduction&) = delete;
    BucketReduction& operator=(const BucketReduction&) = delete;
    virtual ~BucketReduction() = default;

    /// The bucket holds this rank's gradients divided by the number of ranks (undivided for
    /// TreeSum), and belongs to this object until wait() returns.
    virtual void start() = 0;
    /// Goes on with what has been started, without waiting.
    virtual void poll() = 0;
    /// Returns when the bucket holds the mean.
    virtual void wait() = 0;
    /// After wait(): whether the mean is finite, if the reduction has seen that on its way.
    [[nodiscard]] virtual std::optional<bool> finite() const { return std::nullopt; }

    /// What it remembers between passes. *Collective.*
    virtual void save(RankStateWriter& /*out*/) const {}
    virtual void load(const StateReader& /*in*/) {}
};

/// Sums the bucket over ranks.
class PlainReduction : public BucketReduction {
public:
    PlainReduction(AnyBackend& backend, at::Tensor memory, bool check_finite)
        : memory_(std::move(memory)), sum_(backend.make_reduction(memory_, ReduceOp::sum)) {
        if (check_finite) {
            sum_->check_finite();
        }
    }
    void start() override { sum_->start(); }
    void poll() override { sum_->poll(); }
    void wait() override { sum_->wait(); }
    [[nodiscard]] std::optional<bool> finite() const override { return sum_->finite(); }

private:
    at::Tensor memory_;
    std::unique_ptr<AnyReduction> sum_;
};

} // namespace rtrain::detail
