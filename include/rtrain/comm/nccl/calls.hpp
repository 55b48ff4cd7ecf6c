// SPDX-License-Identifier: Apache-2.0
/// @file
/// NCCL's collectives on given tensors, to be enqueued on a stream once or repeatedly.
#pragma once

#include <rtrain/comm/nccl/types.hpp>

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

namespace rtrain::comm {

/// Made by the functions below.
struct NcclCall {
    const char* name;
    std::vector<at::Tensor> tensors; ///< contiguous; its inputs and outputs
    /// Empty for tensors without elements.
    std::function<ncclResult_t(ncclComm_t, cudaStream_t)> enqueue;
};

/// In place.
[[nodiscard]] inline NcclCall nccl_all_reduce(const at::Tensor& tensor, ReduceOp op) {
    NcclCall call{"all_reduce", {tensor}, {}};
    const NcclElements all = nccl_elements(tensor, op);
    if (all.count > 0) {
        call.enqueue = [all, operation = nccl_operation(op, tensor.scalar_type())](auto... on) {
            return ncclAllReduce(all.data, all.data, all.count, all.type, operation, on...);
        };
    }
    return call;
}

/// `row` receives this rank's row of the reduced `rows`, which has one for each rank.
[[nodiscard]] inline NcclCall nccl_reduce_scatter(const at::Tensor& rows, const at::Tensor& row,
                                                  ReduceOp op) {
    NcclCall call{"reduce_scatter", {rows, row}, {}};
    const NcclElements mine = nccl_elements(row, op);
    if (mine.count > 0) {
        call.enqueue = [mine, from = rows.const_data_ptr(),
                        operation = nccl_operation(op, row.scalar_type())](auto... on) {
            return ncclReduceScatter(from, mine.data, mine.count, mine.type, operation, on...);
        };
    }
    return call;
}

/// `rows` receives the `row` of each rank; any type.
[[nodiscard]] inline NcclCall nccl_all_gather(const at::Tensor& row, const at::Tensor& rows) {
    NcclCall call{"all_gather", {row, rows}, {}};
    if (row.nbytes() > 0) {
        call.enqueue = [from = row.const_data_ptr(), bytes = row.nbytes(), to = rows.data_ptr()](
                           auto... on) { return ncclAllGather(from, to, bytes, ncclUint8, on...); };
    }
    return call;
}

/// `tensor` receives the bytes of rank `root`'s; any type.
[[nodiscard]] inline NcclCall nccl_broadcast(const at::Tensor& tensor, int root) {
    NcclCall call{"broadcast", {tensor}, {}};
    if (tensor.nbytes() > 0) {
        call.enqueue = [data = tensor.data_ptr(), bytes = tensor.nbytes(), root](auto... on) {
            return ncclBroadcast(data, data, bytes, ncclUint8, root, on...);
        };
    }
    return call;
}

} // namespace rtrain::comm
