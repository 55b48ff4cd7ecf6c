// SPDX-License-Identifier: Apache-2.0
/// @file
/// What ranks that read together have to agree on. Cost tier 0: std only.
#pragma once

#include <functional>

namespace at {
class Tensor;
} // namespace at

namespace rtrain::data {

/// Makes each number of a tensor, int64 on the CPU, the greatest of all ranks. *Collective.*
using GreatestOfRanks = std::function<void(at::Tensor&)>;

} // namespace rtrain::data
