// SPDX-License-Identifier: Apache-2.0
/// @file
/// The goal of a search, and the reports and ends of trials, as used by searchers, schedulers and
/// records. Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/config/run_info.hpp>
#include <rtrain/config/score_order.hpp>

#include <cstdint>
#include <string>

namespace rtrain::tune {

/// The metric of the reports to maximize or minimize.
struct Goal {
    std::string metric{};              ///< "a/b" reads a nested value; empty: no goal
    ScoreOrder mode = ScoreOrder::max; ///< whether to maximize or minimize
};

/// The end of a trial.
enum class TrialEnd : unsigned char {
    completed, ///< its function has returned, or its own stop conditions hold
    stopped,   ///< a scheduler has stopped it
    errored    ///< it has failed, and is not restarted
};

/// A report of a trial.
struct TrialReport {
    std::string trial{};        ///< its id
    std::int64_t iteration = 0; ///< number of the report; the first is 1
    double time_s = 0;          ///< training time, all starts together
    /// The line of result.json, with "training_iteration" and "time_total_s".
    Config metrics{};
    bool others_wait = false; ///< true if pending or paused trials wait for a place
};

} // namespace rtrain::tune
