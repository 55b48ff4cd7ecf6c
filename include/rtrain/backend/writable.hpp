// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writing into parameters, even if ranks share their memory.
#pragma once

#include <rtrain/process/memory/deferred_copy.hpp>
#include <rtrain/process/memory/read_only_memory.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

namespace rtrain::detail {

/// Returns `tensor`, or if its memory is read-only, a writable tensor over the same memory. All
/// ranks of the node see the writes: they write the same, or only one writes while none computes.
/// No copy of this process's memory is in flight then.
[[nodiscard]] inline at::Tensor writable(const at::Tensor& tensor) {
    process::DeferredCopy::finish_all();
    if (!tensor.is_cpu() || tensor.numel() == 0) {
        return tensor;
    }
    std::byte* const memory = process::ReadOnlyMemory::writable(tensor.const_data_ptr());
    if (memory == nullptr) {
        return tensor;
    }
    if (auto* const loads = process::ReadOnlyMemory::loads(tensor.const_data_ptr())) {
        loads->fetch_add(1); // another rank that is still copying it notices
    }
    return at::from_blob(memory, tensor.sizes(), tensor.strides(),
                         tensor.options().requires_grad(false));
}

} // namespace rtrain::detail
