// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a rank makes of the arguments of a collective before it tells the others of the call, and
/// what it finds wrong with them.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/call.hpp>
#include <rtrain/comm/kernels.hpp>
#include <rtrain/comm/reduce_op.hpp>
#include <rtrain/comm/slices.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace rtrain::comm {

/// The call that `tensor` is for. Throws CommError [RT-X6, RT-X7, RT-X11].
[[nodiscard]] inline Call checked(Collective collective, const at::Tensor& tensor,
                                  std::optional<ReduceOp> op = std::nullopt) {
    if (!tensor.defined() || !tensor.device().is_cpu()) {
        throw CommError("RT-X6",
                        detail::concat("backend::Mpi communicates CPU tensors, this one is ",
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

/// The rows of a tensor that has one for each of `size` ranks; else throws CommError [RT-X13].
[[nodiscard]] inline Slices rows_of(const at::Tensor& tensor, int size) {
    if (tensor.dim() == 0 || tensor.size(0) != size) {
        throw CommError("RT-X13",
                        detail::concat("reduce_scatter needs a tensor with one row "
                                       "for each of ",
                                       size, " ranks; this one has shape ", tensor.sizes()));
    }
    return Slices::equal(tensor.numel() / size, size);
}

/// Throws CommError [RT-X13] when there is no such rank.
[[nodiscard]] inline int require_rank(int rank, int size) {
    if (rank < 0 || rank >= size) {
        throw CommError("RT-X13", detail::concat("there is no rank ", rank, " among ", size));
    }
    return rank;
}

/// Throws CommError [RT-X13] for what messages cannot be made of.
inline void require_contiguous(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.device().is_cpu() || !tensor.is_contiguous()) {
        throw CommError("RT-X13", "messages and collectives under way need contiguous CPU "
                                  "tensors; pass tensor.contiguous()");
    }
}

/// Room for the tensors of `size` ranks, with this rank's in its row.
[[nodiscard]] inline at::Tensor rows_for(const at::Tensor& tensor, int rank, int size) {
    std::vector<std::int64_t> shape = tensor.sizes().vec();
    shape.insert(shape.begin(), size);
    at::Tensor rows = at::empty(shape, tensor.options());
    rows.select(0, rank).copy_(tensor);
    return rows;
}

/// Gives the caller's tensor what a contiguous copy of it has become.
inline void copy_back(const at::Tensor& buffer, at::Tensor& tensor) {
    if (!buffer.is_same(tensor)) {
        tensor.copy_(buffer);
    }
}

} // namespace rtrain::comm
