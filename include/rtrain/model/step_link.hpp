// SPDX-License-Identifier: Apache-2.0
/// @file
/// What backward knows of an optimizer whose parameters it steps: see
/// ShardedOptions::step_in_backward.
#pragma once

#include <functional>

namespace rtrain::detail {

/// Lives as long as the optimizer, which may move.
struct StepLink {
    std::function<void()> step; ///< all parameters that have a gradient, and no others
};

} // namespace rtrain::detail
