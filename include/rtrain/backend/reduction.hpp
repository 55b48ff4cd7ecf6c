// SPDX-License-Identifier: Apache-2.0
/// @file
/// A repeatable all-reduce of one buffer on any backend: overlapping with computation where the
/// backend can, else blocking in start().
#pragma once

#include <rtrain/backend/policy.hpp>

#include <ATen/core/Tensor.h>

#include <utility>

namespace rtrain::detail {

template <Backend B>
class BlockingReduction {
public:
    BlockingReduction(B& backend, at::Tensor tensor, ReduceOp op)
        : backend_(&backend), tensor_(std::move(tensor)), op_(op) {}
    void start() { backend_->all_reduce(tensor_, op_); }
    void poll() {}
    void wait() {}

private:
    B* backend_;
    at::Tensor tensor_;
    ReduceOp op_;
};

/// `tensor` is contiguous and keeps its memory; it must not be touched from start() to wait().
template <Backend B>
[[nodiscard]] auto make_reduction(B& backend, at::Tensor& tensor, ReduceOp op) {
    if constexpr (AsyncBackend<B>) {
        return backend.all_reduce_async(tensor, op);
    } else {
        return BlockingReduction<B>(backend, tensor, op);
    }
}

template <Backend B>
using Reduction =
    decltype(make_reduction(std::declval<B&>(), std::declval<at::Tensor&>(), ReduceOp::sum));

} // namespace rtrain::detail
