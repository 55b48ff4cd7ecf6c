// SPDX-License-Identifier: Apache-2.0
/// @file
/// The hooks float16 and bfloat16: a bucket travels in half the bytes.
#pragma once

#include <rtrain/model/bucket_reduction.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <utility>

namespace rtrain::detail {

/// Sums a copy of the bucket in a type of two bytes. Gradients are divided by the number of ranks
/// before they are converted, so that their sum stays in range.
template <Backend B>
class HalfReduction : public BucketReduction {
public:
    HalfReduction(B& backend, at::Tensor memory, at::ScalarType type)
        : memory_(std::move(memory)),
          sent_(make_bucket(backend, memory_.numel(), memory_.options().dtype(type))),
          sum_(make_reduction(backend, sent_, ReduceOp::sum)) {}

    void start() override {
        sent_.copy_(memory_);
        sum_.start();
    }
    void poll() override { sum_.poll(); }
    void wait() override {
        sum_.wait();
        memory_.copy_(sent_);
    }

private:
    at::Tensor memory_;
    at::Tensor sent_;
    Reduction<B> sum_;
};

} // namespace rtrain::detail
