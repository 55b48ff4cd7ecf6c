// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a search wants, how a trial ends, and what a trial reports: what searchers, schedulers and
/// the record of a search all know. Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/config/run_info.hpp>
#include <rtrain/config/score_order.hpp>

#include <cstdint>
#include <string>

namespace rtrain::tune {

/// Which metric of the reports is to become large, or small.
struct Goal {
    std::string metric{};              ///< "a/b" reads a nested one; empty: there is no goal
    ScoreOrder mode = ScoreOrder::max; ///< which of the two
};

/// How a trial has ended.
enum class TrialEnd : unsigned char {
    completed, ///< its function has returned, or its own stop conditions hold
    stopped,   ///< a scheduler has given it up
    errored    ///< it has failed, and is not started again
};

/// What a trial has reported.
struct TrialReport {
    std::string trial{};        ///< its id
    std::int64_t iteration = 0; ///< of its reports, the first is 1
    double time_s = 0;          ///< that it has trained, all its starts together
    /// The line of result.json; it has "training_iteration" and "time_total_s", too.
    Config metrics{};
    bool others_wait = false; ///< whether pending or paused trials wait for a place
};

} // namespace rtrain::tune
