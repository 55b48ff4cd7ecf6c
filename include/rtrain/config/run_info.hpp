// SPDX-License-Identifier: Apache-2.0
/// @file
/// RunInfo: describes the run to trackers and callbacks. Cost tier 1: std and Boost.JSON.
#pragma once

#include <boost/json/object.hpp>

#include <cstdint>
#include <filesystem>
#include <string>

namespace rtrain {

/// Hyperparameters and metrics: a JSON object. `config.at("lr").to_number<double>()` reads one.
using Config = boost::json::object;

namespace track {

/// Number of reports and steps that are valid, or that a tracker has received.
struct Position {
    std::int64_t iteration = 0; ///< reports
    std::int64_t step = 0;      ///< steps of worker.log()

    friend bool operator==(const Position&, const Position&) noexcept = default;
};

/// The run of a tracker or callback.
struct RunInfo {
    std::string name{};
    /// Local directory in which result.json grows. For a run on a storage service, the tracker's
    /// output() in it is copied when checkpoints are saved and at the end.
    std::filesystem::path directory{};
    std::string location{}; ///< path or URI of the run's directory, for people
    Config config{};        ///< TrainerOptions::config
    std::string attempt{};  ///< unique ID of this start of the run
    Position position{};    ///< what is valid; later reports will be made again
    bool resumed = false;   ///< the run resumes from one of its checkpoints
    int ranks = 1;          ///< number of ranks that train
};

} // namespace track
} // namespace rtrain
