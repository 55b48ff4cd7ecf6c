// SPDX-License-Identifier: Apache-2.0
/// @file
/// A repeatable all-reduce of one buffer on any backend: overlapping with computation where the
/// backend can, else blocking in start().
#pragma once

#include <rtrain/backend/policy.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
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

/// Zeroed memory for a bucket, where the backend reduces it best. Collective.
template <Backend B>
[[nodiscard]] at::Tensor make_bucket(B& backend, std::int64_t elements,
                                     const at::TensorOptions& type) {
    if constexpr (requires { backend.allocate_bucket(elements, type); }) {
        return backend.allocate_bucket(elements, type);
    } else {
        return at::zeros({elements}, type);
    }
}

template <Backend B>
using Reduction =
    decltype(make_reduction(std::declval<B&>(), std::declval<at::Tensor&>(), ReduceOp::sum));

} // namespace rtrain::detail
