// SPDX-License-Identifier: Apache-2.0
/// @file
/// Validates the arguments of a collective and describes the call to the other ranks.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/kernels/call.hpp>
#include <rtrain/comm/kernels/kernels.hpp>
#include <rtrain/comm/kernels/reduce_op.hpp>
#include <rtrain/comm/kernels/slices.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace rtrain::comm {

/// Returns the call for `tensor`. Throws CommError [RT-X6, RT-X7, RT-X11].
[[nodiscard]] inline Call checked(Collective collective, const at::Tensor& tensor,
                                  std::optional<ReduceOp> op = std::nullopt) {
    if (!tensor.defined() || !tensor.device().is_cpu()) {
        throw CommError("RT-X6",
                        detail::concat("backend::Mpi communicates CPU tensors, but the tensor is ",
                                       tensor.defined() ? tensor.device().str() : "undefined",
                                       "; move it with tensor.cpu()"));
    }
    if (op) {
        require_reducible(tensor.scalar_type(), *op);
    }
    return {.collective = collective,
            .op = op.value_or(ReduceOp::sum),
            .type = tensor.scalar_type(),
            .shape = hash_of(tensor.sizes()),
            .elements = tensor.numel()};
}

/// Returns the rows of a tensor that has one for each of `size` ranks; throws CommError [RT-X13]
/// for any other.
[[nodiscard]] inline Slices rows_of(const at::Tensor& tensor, int size) {
    if (tensor.dim() == 0 || tensor.size(0) != size) {
        throw CommError("RT-X13",
                        detail::concat("reduce_scatter needs a tensor with one row "
                                       "for each of ",
                                       size, " ranks; this one has shape ", tensor.sizes()));
    }
    return Slices::equal(tensor.numel() / size, size);
}

/// Throws CommError [RT-X13] if the rank does not exist.
[[nodiscard]] inline int require_rank(int rank, int size) {
    if (rank < 0 || rank >= size) {
        throw CommError(
            "RT-X13",
            detail::concat("rank ", rank, " does not exist in a communicator of size ", size));
    }
    return rank;
}

/// Throws CommError [RT-X13] for a tensor that messages cannot carry.
inline void require_contiguous(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.device().is_cpu() || !tensor.is_contiguous()) {
        throw CommError("RT-X13", "messages and asynchronous collectives need contiguous CPU "
                                  "tensors; pass tensor.contiguous()");
    }
}

/// Returns memory for the tensors of `size` ranks, with this rank's in its row.
[[nodiscard]] inline at::Tensor rows_for(const at::Tensor& tensor, int rank, int size) {
    std::vector<std::int64_t> shape = tensor.sizes().vec();
    shape.insert(shape.begin(), size);
    at::Tensor rows = at::empty(shape, tensor.options());
    rows.select(0, rank).copy_(tensor);
    return rows;
}

/// Copies the result from a contiguous buffer back to the caller's tensor.
inline void copy_back(const at::Tensor& buffer, at::Tensor& tensor) {
    if (!buffer.is_same(tensor)) {
        tensor.copy_(buffer);
    }
}

} // namespace rtrain::comm
