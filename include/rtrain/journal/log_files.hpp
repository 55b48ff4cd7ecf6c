// SPDX-License-Identifier: Apache-2.0
/// @file
/// The files of a run that grow with its reports.
#pragma once

#include <rtrain/config/config.hpp>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::track {

inline constexpr const char* results_file = "result.json";
inline constexpr const char* superseded_file = "superseded.json";
inline constexpr const char* progress_file = "progress.csv";
inline constexpr const char* steps_file = "steps.jsonl";
inline constexpr const char* params_file = "params.json";
inline constexpr const char* error_file = "error.json"; ///< while the run has failed
inline constexpr const char* trackers_file = "trackers.json";
inline constexpr const char* rank_logs_directory =
    "logs";                                           ///< RunConfig::logging; see rank_logs.hpp
inline constexpr const char* live_file = "live.json"; ///< see track/live_note.hpp
inline constexpr std::array log_files{results_file, superseded_file, progress_file, steps_file,
                                      params_file};

/// All of them, and what trackers write: files and directories that are brought to a storage
/// service.
[[nodiscard]] inline std::vector<std::string> logs_of(const RunConfig& run) {
    std::vector<std::string> logs(log_files.begin(), log_files.end());
    if (!run.trackers.empty()) {
        logs.insert(logs.begin(), trackers_file); // before what it is about
    }
    for (const AnyTracker& tracker : run.trackers) {
        if (std::string output = tracker.output(); !output.empty()) {
            logs.push_back(std::move(output));
        }
    }
    return logs;
}

} // namespace rtrain::track
