// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of `worker.prepare(model)`: those of PyTorch's DistributedDataParallel.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace rtrain {

struct DataParallelOptions {
    /// Size of a gradient bucket in bytes. A bucket is averaged as soon as backward has filled it;
    /// small buckets start early, large ones send fewer messages.
    std::int64_t bucket_bytes = std::int64_t{25} << 20;
    /// Size of the bucket that backward fills first.
    std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
    /// Allow parameters that take no part in a backward pass: they count as zero gradients, and
    /// keep the gradient they had if no rank used them. Costs one small reduction a step. Off: such
    /// a parameter is an error (RT-M3).
    bool find_unused_parameters = false;
    /// `parameter.grad()` is memory of the bucket after backward: saves a copy and the memory of
    /// one set of gradients. A gradient tensor kept across steps then changes with the next step.
    /// (PyTorch's default is false, because there `zero_grad()` fails on such gradients in C++.)
    bool gradient_as_bucket_view = true;
    /// Before each forward in training mode, buffers (running means) become those of rank 0.
    bool broadcast_buffers = true;
    /// Calling the handle runs forward under autocast in this type, at::kBFloat16 or at::kHalf, and
    /// returns float32; parameters and gradients stay float32. Half needs a GradScaler.
    std::optional<at::ScalarType> autocast = std::nullopt;
};

} // namespace rtrain
