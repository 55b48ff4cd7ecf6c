// SPDX-License-Identifier: Apache-2.0
/// @file
/// What is said of a sharded model that is not trained as it has to be.
#pragma once

#include <rtrain/base/error.hpp>

#include <string>

namespace rtrain::detail {

/// Throws ModelError [RT-M41].
[[noreturn]] inline void throw_moved(const std::string& parameter) {
    throw ModelError("RT-M41",
                     concat("parameter \"", parameter,
                            "\" of a sharded model has got other memory since prepare(), as "
                            "torch::load and set_data() give it; ranks would train different "
                            "models. Load before prepare(), through State, or within edit()"));
}

/// Throws ModelError [RT-M42].
[[noreturn]] inline void throw_without_optimizer(const std::string& parameter) {
    throw ModelError("RT-M42",
                     concat("parameter \"", parameter,
                            "\" trains, but no optimizer has this rank's part of it; pass "
                            "optimizers of sharded models through worker.prepare(), "
                            "behind the model, and give them all groups before"));
}

/// Throws ModelError [RT-M43].
[[noreturn]] inline void throw_not_zeroed(const std::string& parameter) {
    throw ModelError("RT-M43", concat("the gradient of parameter \"", parameter,
                                      "\" was not zeroed between the optimizer's step and the next "
                                      "backward; gradients of a sharded model lie in its "
                                      "optimizer: call optimizer.zero_grad()"));
}

/// Throws ModelError [RT-M46].
[[noreturn]] inline void throw_stepped_twice() {
    throw ModelError("RT-M46", "with step_in_backward each backward is a step, but a second one "
                               "began before optimizer.step(); call it behind each backward. "
                               "Gradients of several passes cannot be added up: leave "
                               "step_in_backward out for that");
}

/// Throws ModelError [RT-M47].
[[noreturn]] inline void throw_not_sent(const std::string& parameter) {
    throw ModelError(
        "RT-M47", concat("passes under no_sync() have left a gradient of parameter \"", parameter,
                         "\" on this rank, and none behind them has sent it; let the last "
                         "pass before step() run outside no_sync()"));
}

} // namespace rtrain::detail
