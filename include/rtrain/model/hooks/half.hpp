// SPDX-License-Identifier: Apache-2.0
/// @file
/// The hooks float16 and bfloat16: a bucket is sent in half the bytes.
#pragma once

#include <rtrain/model/reduction/bucket_reduction.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

namespace rtrain::detail {

/// Sums a copy of the bucket in a type of two bytes. Gradients are divided by the number of ranks
/// before they are converted, so that their sum stays in range.
class HalfReduction : public BucketReduction {
public:
    HalfReduction(AnyBackend& backend, at::Tensor memory, at::ScalarType type)
        : memory_(std::move(memory)),
          sent_(backend.make_bucket(memory_.numel(), memory_.options().dtype(type))),
          sum_(backend.make_reduction(sent_)) {}

    void start() override {
        sent_.copy_(memory_);
        sum_->start();
    }
    void poll() override { sum_->poll(); }
    void wait() override {
        sum_->wait();
        memory_.copy_(sent_);
    }

private:
    at::Tensor memory_;
    at::Tensor sent_;
    std::unique_ptr<AnyCollective> sum_;
};

} // namespace rtrain::detail
