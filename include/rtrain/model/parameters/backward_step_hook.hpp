// SPDX-License-Identifier: Apache-2.0
/// @file
/// Backward's access to an optimizer whose parameters it steps: see
/// ShardedOptions::step_in_backward.
#pragma once

#include <functional>

namespace rtrain::detail {

/// Lives as long as the optimizer, which may move.
struct BackwardStepHook {
    std::function<void()> step; ///< steps all parameters that have a gradient, and no others
};

} // namespace rtrain::detail
