// SPDX-License-Identifier: Apache-2.0
/// @file
/// What trackers and callbacks are told about the run. Cost tier 1: std and Boost.JSON.
#pragma once

#include <boost/json/object.hpp>

#include <cstdint>
#include <filesystem>
#include <string>

namespace rtrain {

/// Hyperparameters and metrics: a JSON object. `config.at("lr").to_number<double>()` reads one.
using Config = boost::json::object;

namespace track {

/// How much of a run counts, or has come to a tracker.
struct Position {
    std::int64_t iteration = 0; ///< reports
    std::int64_t step = 0;      ///< of worker.log()

    friend bool operator==(const Position&, const Position&) noexcept = default;
};

/// The run that a tracker is to show, or a callback hears of.
struct RunInfo {
    std::string name{};
    /// Of this machine, where result.json grows. A run on a storage service has what the tracker
    /// leaves there copied when checkpoints are saved and at the end, if output() names it.
    std::filesystem::path directory{};
    std::string location{}; ///< path or URI of the run's directory, for people
    Config config{};        ///< TrainerOptions::config
    std::string attempt{};  ///< of this start of the run; each has another
    Position position{};    ///< what counts; the rest will be made again
    bool resumed = false;   ///< the run goes on from a checkpoint of its own
    int ranks = 1;          ///< that train in it
};

} // namespace track
} // namespace rtrain
