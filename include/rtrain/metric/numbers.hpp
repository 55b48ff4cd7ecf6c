// SPDX-License-Identifier: Apache-2.0
/// @file
/// A tensor's elements in memory, for metrics that add them up in order: torch's own sums would
/// depend on the number of threads. For definitions only.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

namespace rtrain::metric {

/// Elements as double, in row-major order.
class Numbers {
public:
    explicit Numbers(const at::Tensor& tensor)
        : values_(tensor.detach().to(at::kCPU, at::kDouble).contiguous()) {}

    [[nodiscard]] std::span<const double> all() const& {
        return {values_.const_data_ptr<double>(), static_cast<std::size_t>(values_.numel())};
    }
    void all() && = delete; // a loop over a temporary's numbers would outlive them

private:
    at::Tensor values_;
};

} // namespace rtrain::metric
