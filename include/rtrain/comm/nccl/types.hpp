// SPDX-License-Identifier: Apache-2.0
/// @file
/// The only header that includes <nccl.h>, and the conversion of tensors and reductions to NCCL's
/// types.
#pragma once

#if !__has_include(<nccl.h>)
#error "rtrain: backend::Nccl needs nccl.h and CUDA's headers; link the target rtrain::nccl"
#endif

#include <rtrain/base/error.hpp>
#include <rtrain/comm/kernels/reduce_op.hpp>
#include <rtrain/process/throw_for_good.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <nccl.h>

#include <cstddef>
#include <optional>
#include <string>

namespace rtrain::comm {

/// Throws CommError [RT-N5] unless `result` is success. Does not check other ranks.
inline void check_nccl(ncclResult_t result, const char* call) {
    if (result != ncclSuccess) {
        throw_for_good(
            CommError("RT-N5", detail::concat(call, " failed: ", ncclGetErrorString(result))));
    }
}

/// The elements of a contiguous tensor as NCCL reduces them.
struct NcclElements {
    void* data;
    std::size_t count;
    ncclDataType_t type;
};

/// NCCL's name of a type; empty if NCCL cannot reduce it. A bool is a byte that is 0 or 1.
[[nodiscard]] inline std::optional<ncclDataType_t> nccl_type(at::ScalarType type) {
    switch (type) {
    case at::kFloat:
        return ncclFloat32;
    case at::kDouble:
        return ncclFloat64;
    case at::kHalf:
        return ncclFloat16;
    case at::kBFloat16:
        return ncclBfloat16;
    case at::kInt:
        return ncclInt32;
    case at::kLong:
        return ncclInt64;
    case at::kChar:
        return ncclInt8;
    case at::kByte:
    case at::kBool:
        return ncclUint8;
    default:
        return std::nullopt;
    }
}

/// Throws CommError: RT-X7 for the mean of integers, RT-N8 for types that NCCL cannot reduce.
[[nodiscard]] inline NcclElements nccl_elements(const at::Tensor& tensor, ReduceOp op) {
    if (op == ReduceOp::mean && !tensor.is_floating_point()) {
        throw CommError("RT-X7", detail::concat("the mean of ", tensor.scalar_type(),
                                                " tensors is not an integer; reduce a sum, or "
                                                "convert to a floating-point type first"));
    }
    const auto type = nccl_type(tensor.scalar_type());
    if (!type) {
        throw CommError("RT-N8",
                        detail::concat("NCCL cannot reduce tensors of type ", tensor.scalar_type(),
                                       "; convert to float32, or to int32 for a small "
                                       "integer type, and back"));
    }
    return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), *type};
}

/// NCCL's reduction for this type. The sum of bools is their disjunction, as in libtorch.
[[nodiscard]] inline ncclRedOp_t nccl_operation(ReduceOp op, at::ScalarType type) {
    switch (op) {
    case ReduceOp::sum:
        return type == at::kBool ? ncclMax : ncclSum;
    case ReduceOp::mean:
        return ncclAvg;
    case ReduceOp::min:
        return ncclMin;
    case ReduceOp::max:
        return ncclMax;
    }
    return ncclSum; // not reached: all operations are above
}

} // namespace rtrain::comm
