// SPDX-License-Identifier: Apache-2.0
/// @file
/// Faults that a process does to itself at a point of its way through a run. chaos.py chooses one
/// through the environment:
///
/// @code
/// RTRAIN_CHAOS='kill@backward:rank=1:step=7:once=/tmp/struck'
/// @endcode
///
/// Rank 1 kills itself in the first backward pass from step 7 on, and creates the file; once it is
/// there, nothing happens any more. Without `once`, every attempt is struck. Without `rank`, the
/// first to come; without `step`, any. `rank=driver` is the driver. Behind `bad_alloc`, `nth` and
/// `threads=others` say which allocation fails. Kinds and phases: strike() and README.md.
#pragma once

#include <string>

namespace chaos {

/// What a process was told to do. `step` counts from 1, as the workload's.
struct Fault {
    std::string kind; ///< empty: nothing
    std::string phase;
    int rank = -1;
    long step = 0;
    std::string once;
    long nth = 1;        ///< of bad_alloc: the allocation behind the point that fails
    bool others = false; ///< of bad_alloc: one of another thread than comes by

    static constexpr int driver = -2; ///< as a rank
};

/// Of RTRAIN_CHAOS. Ends the process when it cannot be read: a harness that tests nothing is worse.
[[nodiscard]] const Fault& fault();

/// This process comes by a point; it may not come back.
void point(const char* phase);

/// The step that points belong to from now on.
void set_step(long step);

/// Files below this directory are those that a full disk hits and phases of a checkpoint are told
/// by.
void watch_storage(const std::string& directory);

/// A new attempt begins, also within this process: a disk that was full has room again.
void begin_attempt();

/// Whether the loss that has just been computed is to become NaN: once after each such fault.
[[nodiscard]] bool next_loss_is_nan();

} // namespace chaos
