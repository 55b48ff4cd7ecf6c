// SPDX-License-Identifier: Apache-2.0
/// @file
/// Batches copies between tensors of one device into as few kernels as possible.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace rtrain::detail {

class DeviceCopies {
public:
    /// The tensors have equal shapes.
    void add(at::Tensor to, at::Tensor from) {
        to_.push_back(std::move(to));
        from_.push_back(std::move(from));
    }
    void run() {
        if (!to_.empty()) {
            at::_foreach_copy_(to_, from_);
        }
        to_.clear();
        from_.clear();
    }

private:
    std::vector<at::Tensor> to_;
    std::vector<at::Tensor> from_;
};

} // namespace rtrain::detail
