// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writing into parameters, also where ranks share their memory.
#pragma once

#include <rtrain/process/late_copy.hpp>
#include <rtrain/process/read_only_memory.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

namespace rtrain::detail {

/// `tensor`, or where its memory can only be read, another over the same memory that can be
/// written. All ranks of the node see what is written: they write the same, or only one does, while
/// none of them computes. No copy of what this process has in memory is under way then.
[[nodiscard]] inline at::Tensor writable(const at::Tensor& tensor) {
    process::LateCopy::finish_all();
    if (!tensor.is_cpu() || tensor.numel() == 0) {
        return tensor;
    }
    std::byte* const memory = process::ReadOnlyMemory::writable(tensor.const_data_ptr());
    if (memory == nullptr) {
        return tensor;
    }
    if (auto* const loads = process::ReadOnlyMemory::loads(tensor.const_data_ptr())) {
        loads->fetch_add(1); // another rank that still copies it finds out
    }
    return at::from_blob(memory, tensor.sizes(), tensor.strides(),
                         tensor.options().requires_grad(false));
}

} // namespace rtrain::detail
