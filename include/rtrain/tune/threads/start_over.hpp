// SPDX-License-Identifier: Apache-2.0
/// @file
/// How the run of a trial starts over: with another trial's state (Pbt), or from the beginning.
#pragma once

#include <rtrain/tune/controller/generations.hpp>
#include <rtrain/tune/controller/plan.hpp>
#include <rtrain/tune/threads/trial.hpp>

#include <string>

namespace rtrain::tune::internal {

/// Moves aside the files of the trial's previous run if the run starts over. Returns the checkpoint
/// to start from; empty: start from the beginning.
[[nodiscard]] inline std::string start_over(const Trial& trial) {
    const Assignment& what = trial.assignment();
    if (what.taken_over == 0) {
        return "";
    }
    const std::string number = std::to_string(what.taken_over - 1);
    move_aside(trial.directory(), number);
    return what.base_reports == 0 ? ""
                                  : (trial.directory().parent_path() / taken_over_directory /
                                     (trial.id() + "_" + number))
                                        .string(); // the name given by the controller
}

} // namespace rtrain::tune::internal
