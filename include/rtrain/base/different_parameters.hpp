// SPDX-License-Identifier: Apache-2.0
/// @file
/// The error for ranks that have drifted apart.
#pragma once

#include <rtrain/base/error.hpp>

#include <cstddef>
#include <string>

namespace rtrain::detail {

/// `rank`: the lowest whose parameter `name` differs from rank 0's; `differ` of `all` parameters
/// do.
[[noreturn]] inline void throw_different_parameters(const std::string& name, std::size_t rank,
                                                    std::size_t differ, std::size_t all) {
    throw ModelError(
        "RT-M25",
        concat("ranks train different models: parameter \"", name, "\" of rank ", rank,
               " differs from rank 0's (", differ, " of ", all,
               " parameters differ); nothing was saved; look for code that only some ranks run: "
               "load or initialize a module, step with a different learning rate, clip or skip a "
               "step; and look for gradients of torch::autograd::grad(), which are not averaged"));
}

} // namespace rtrain::detail
