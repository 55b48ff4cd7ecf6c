// SPDX-License-Identifier: Apache-2.0
/// @file
/// Backend policy: rank, size, and collectives on tensors.
///
/// The smallest type that satisfies the concept, a single process:
/// @code
/// struct Alone {
///     int rank() const { return 0; }
///     int size() const { return 1; }
///     void all_reduce(at::Tensor& tensor, rtrain::ReduceOp op) {}
///     void broadcast(at::Tensor& tensor, int root) {}
/// };
/// @endcode
/// examples/custom_backend.cpp connects several processes. All other capabilities are optional and
/// detected by the concepts below. Cost tier 0: std only; at::Tensor is named by reference, so its
/// declaration is enough.
#pragma once

#include <rtrain/comm/kernels/reduce_op.hpp>

#include <concepts>

namespace at {
class Tensor;
} // namespace at

namespace rtrain {

namespace detail {

template <class B>
concept HasRank = requires(const B& backend) {
    { backend.rank() } -> std::same_as<int>;
};
template <class B>
concept HasSize = requires(const B& backend) {
    { backend.size() } -> std::same_as<int>;
};
template <class B>
concept HasAllReduce = requires(B& backend, at::Tensor& tensor) {
    backend.all_reduce(tensor, ReduceOp::mean);
};
template <class B>
concept HasBroadcast = requires(B& backend, at::Tensor& tensor) {
    backend.broadcast(tensor, 0);
};

} // namespace detail

/// Members of every backend: this rank's number, the number of ranks, and two blocking, in-place
/// collectives that every rank calls in the same order with tensors of equal shape and type.
template <class B>
concept Backend = std::movable<B> && detail::HasRank<B> && detail::HasSize<B> &&
    detail::HasAllReduce<B> && detail::HasBroadcast<B>;

/// Optional: `all_reduce_async(tensor, op)` returns a handle that is started again for each
/// backward pass; gradient averaging then overlaps with it.
template <class B>
concept AsyncBackend = Backend<B> && requires(B& backend, at::Tensor& tensor) {
    backend.all_reduce_async(tensor, ReduceOp::mean).start();
    backend.all_reduce_async(tensor, ReduceOp::mean).poll();
    backend.all_reduce_async(tensor, ReduceOp::mean).wait();
};

/// Explains why `B` is not a backend: one static_assert for each unmet requirement.
template <class B>
struct ExplainBackend {
    static_assert(std::movable<B>,
                  "rtrain: Backend not met: the type must be movable, the trainer owns it [RT-B1]");
    static_assert(detail::HasRank<B>,
                  "rtrain: Backend not met: missing member `int rank() const` [RT-B2]");
    static_assert(detail::HasSize<B>,
                  "rtrain: Backend not met: missing member `int size() const` [RT-B3]");
    static_assert(detail::HasAllReduce<B>, "rtrain: Backend not met: missing member "
                                           "`void all_reduce(at::Tensor&, ReduceOp)` [RT-B4]");
    static_assert(detail::HasBroadcast<B>, "rtrain: Backend not met: missing member "
                                           "`void broadcast(at::Tensor&, int root)` [RT-B5]");
};

} // namespace rtrain
