// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a reduction does with elements. Cost tier 0: std only.
#pragma once

namespace rtrain {

/// How a reduction combines elements; `mean` is the sum divided by `size()`.
enum class ReduceOp : unsigned char {
    sum,  ///< of all ranks
    mean, ///< the sum divided by `size()`
    min,  ///< the smallest of all ranks
    max   ///< the largest of all ranks
};

} // namespace rtrain
