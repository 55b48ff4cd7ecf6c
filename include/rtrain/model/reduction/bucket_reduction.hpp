// SPDX-License-Identifier: Apache-2.0
/// @file
/// The reduction of a bucket of gradients to its mean over ranks: the interface that the reducer
/// drives, and the plain implementation. The others are in hooks/ and tree_sum.hpp.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/model/options/gradient_hook.hpp>

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <utility>

namespace rtrain::detail {

/// Drives one bucket, pass after pass. start() and wait() are called by all ranks in the same
/// order, poll() at any time between them; so only start() and wait() may begin to communicate.
///
/// At start() the bucket holds this rank's gradients divided by the number of ranks (undivided for
/// TreeSum); after wait() it holds the mean.
class BucketReduction : public AnyCollective {
public:
    /// Saves the state kept between passes. *Collective.*
    virtual void save(RankStateWriter& /*out*/) const {}
    virtual void load(const StateReader& /*in*/) {}
};

/// Sums the bucket over ranks.
class PlainReduction : public BucketReduction {
public:
    PlainReduction(AnyBackend& backend, at::Tensor memory, bool check_finite)
        : memory_(std::move(memory)), sum_(backend.make_reduction(memory_, check_finite)) {}
    void start() override { sum_->start(); }
    void poll() override { sum_->poll(); }
    void wait() override { sum_->wait(); }
    [[nodiscard]] std::optional<bool> finite() const override { return sum_->finite(); }
    [[nodiscard]] std::shared_ptr<comm::BucketPieces>
    make_pieces(std::vector<comm::Piece> pieces) override {
        return sum_->make_pieces(std::move(pieces));
    }

private:
    at::Tensor memory_;
    std::unique_ptr<AnyCollective> sum_;
};

} // namespace rtrain::detail
