// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writing into tensors whose memory ranks share.
#pragma once

#include <rtrain/process/read_only_memory.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

namespace rtrain::detail {

/// `tensor`, or where its memory can only be read, another over the same memory that can be
/// written. All ranks of the node see what is written: they write the same, or only one does, while
/// none of them computes.
[[nodiscard]] inline at::Tensor writable(const at::Tensor& tensor) {
    if (!tensor.is_cpu() || tensor.numel() == 0) {
        return tensor;
    }
    std::byte* const memory = process::ReadOnlyMemory::writable(tensor.const_data_ptr());
    if (memory == nullptr) {
        return tensor;
    }
    return at::from_blob(memory, tensor.sizes(), tensor.strides(),
                         tensor.options().requires_grad(false));
}

} // namespace rtrain::detail
