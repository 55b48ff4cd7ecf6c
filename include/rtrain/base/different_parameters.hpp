// SPDX-License-Identifier: Apache-2.0
/// @file
/// How it reads that ranks have drifted apart, whenever that is found.
#pragma once

#include <rtrain/base/error.hpp>

#include <cstddef>
#include <string>

namespace rtrain::detail {

/// `rank` is the first that has another parameter `name` than rank 0; `differ` of `all` do.
[[noreturn]] inline void throw_different_parameters(const std::string& name, std::size_t rank,
                                                    std::size_t differ, std::size_t all) {
    throw ModelError(
        "RT-M25",
        concat("ranks train different models: parameter \"", name, "\" of rank ", rank,
               " is not that of rank 0 (", differ, " of ", all,
               " parameters differ). Nothing was saved. Look for what only some ranks do: load or "
               "initialize a module, step with a different learning rate, clip or skip a step; and "
               "for gradients of torch::autograd::grad(), which are not averaged"));
}

} // namespace rtrain::detail
