// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reduction operators. Cost tier 0: std only.
#pragma once

namespace rtrain {

/// Reduction operator.
enum class ReduceOp : unsigned char {
    sum,  ///< of all ranks
    mean, ///< the sum divided by `size()`
    min,  ///< the smallest of all ranks
    max   ///< the largest of all ranks
};

} // namespace rtrain
