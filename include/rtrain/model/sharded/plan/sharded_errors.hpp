// SPDX-License-Identifier: Apache-2.0
/// @file
/// Errors for sharded models that are not trained correctly.
#pragma once

#include <rtrain/base/error.hpp>

#include <string>

namespace rtrain::detail {

/// Throws ModelError [RT-M41].
[[noreturn]] inline void throw_moved(const std::string& parameter) {
    throw ModelError("RT-M41",
                     concat("parameter \"", parameter,
                            "\" of a sharded model has got new memory since prepare(), as from "
                            "torch::load or set_data(), so ranks would train different models; "
                            "load before prepare(), through State, or within edit()"));
}

/// Throws ModelError [RT-M42].
[[noreturn]] inline void throw_without_optimizer(const std::string& parameter) {
    throw ModelError(
        "RT-M42",
        concat("parameter \"", parameter,
               "\" trains, but no optimizer has this rank's part of it; pass optimizers of sharded "
               "models through worker.prepare(), after the model and after adding all groups"));
}

/// Throws ModelError [RT-M43].
[[noreturn]] inline void throw_not_zeroed(const std::string& parameter) {
    throw ModelError(
        "RT-M43",
        concat("the gradient of parameter \"", parameter,
               "\" was not zeroed between the optimizer's step and the next backward; call "
               "optimizer.zero_grad(): the optimizer holds the gradients of a sharded model"));
}

/// Throws ModelError [RT-M46].
[[noreturn]] inline void throw_stepped_twice() {
    throw ModelError("RT-M46",
                     "with step_in_backward each backward is a step, but a second backward began "
                     "before optimizer.step(); call optimizer.step() after each backward, or turn "
                     "step_in_backward off to add up gradients of several passes");
}

/// Throws ModelError [RT-M47].
[[noreturn]] inline void throw_not_sent(const std::string& parameter) {
    throw ModelError("RT-M47", concat("passes under no_sync() have left a gradient of parameter \"",
                                      parameter,
                                      "\" on this rank, and no later pass has sent it; run the "
                                      "last pass before step() outside no_sync()"));
}

} // namespace rtrain::detail
