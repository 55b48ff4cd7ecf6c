// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks a tensor for infinities and NaN, reading its memory once.
#pragma once

#include <rtrain/comm/kernels/finite.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstddef>

namespace rtrain::detail {

/// `tensor` is floating-point or complex. Waits for its device.
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
