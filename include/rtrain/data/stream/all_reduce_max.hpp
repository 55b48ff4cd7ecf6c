// SPDX-License-Identifier: Apache-2.0
/// @file
/// An all-reduce by which ranks that read together agree. Cost tier 0: std only.
#pragma once

#include <functional>

namespace at {
class Tensor;
} // namespace at

namespace rtrain::data {

/// Replaces each number of a tensor, int64 on the CPU, by the maximum over all ranks. *Collective.*
using AllReduceMax = std::function<void(at::Tensor&)>;

} // namespace rtrain::data
