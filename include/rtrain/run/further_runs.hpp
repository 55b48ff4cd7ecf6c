// SPDX-License-Identifier: Apache-2.0
/// @file
/// FurtherRuns: runs that the same ranks execute one after another, such as a search's trials
/// (tune/processes/search_link.hpp).
#pragma once

#include <rtrain/run/options/options.hpp>

#include <functional>

namespace rtrain {

namespace launch {
class CallSource;
struct Call;
} // namespace launch

namespace detail {

/// Each run is a call that rank 0 gets after a successful run, whose answer is the end of the run.
/// A fatal failure ends the ranks, as it does without further runs.
struct FurtherRuns {
    launch::CallSource& calls;
    /// Returns the options of the run, on all ranks and in their driver.
    std::function<TrainerOptions(const launch::Call&)> options;
};

} // namespace detail
} // namespace rtrain
