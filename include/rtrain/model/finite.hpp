// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether a tensor holds an infinity or NaN: one pass over its memory.
#pragma once

#include <rtrain/comm/finite.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstddef>

namespace rtrain::detail {

/// Of a floating-point or complex tensor. Waits for its device.
[[nodiscard]] inline bool all_finite(const at::Tensor& tensor) {
    if (tensor.numel() == 0) {
        return true;
    }
    if (tensor.is_cpu() && tensor.is_non_overlapping_and_dense()) {
        return comm::all_finite(tensor.scalar_type(),
                                static_cast<const std::byte*>(tensor.const_data_ptr()),
                                tensor.numel());
    }
    // The largest magnitude takes one kernel, and NaN goes through it.
    return std::isfinite(at::linalg_vector_norm(tensor, INFINITY).to(at::kDouble).item<double>());
}

} // namespace rtrain::detail
