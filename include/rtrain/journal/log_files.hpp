// SPDX-License-Identifier: Apache-2.0
/// @file
/// The files in a run's directory that grow with its reports.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/config/config.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::track {

inline constexpr const char* results_file = "result.json";
inline constexpr const char* superseded_file = "superseded.json";
inline constexpr const char* progress_file = "progress.csv";
inline constexpr const char* steps_file = "steps.jsonl";
inline constexpr const char* params_file = "params.json";
inline constexpr const char* run_file =
    "run.json"; ///< resources of the newest start, and its models
inline constexpr const char* error_file = "error.json"; ///< exists while the run has failed
inline constexpr const char* trackers_file = "trackers.json";
inline constexpr const char* rank_logs_directory =
    "logs";                                           ///< RunConfig::logging; see rank_logs.hpp
inline constexpr const char* live_file = "live.json"; ///< see track/live/live_note.hpp
inline constexpr const char* report_file = "report.html";
inline constexpr const char* stop_file = "stopped.json";    ///< see Result::stop_reason
inline constexpr const char* trace_file = "trace.json";     ///< RunConfig::profile
inline constexpr const char* trainer_file = "trainer.json"; ///< for Trainer::restore
inline constexpr const char* latest_file = "latest";        ///< names the newest checkpoint
inline constexpr std::array log_files{results_file, superseded_file, progress_file, steps_file,
                                      params_file};
/// Other names that rtrain may write into a run's directory, except checkpoints and names that
/// begin with a dot.
inline constexpr std::array other_files{trackers_file,       error_file, live_file,    report_file,
                                        stop_file,           trace_file, trainer_file, latest_file,
                                        rank_logs_directory, run_file};

/// Names in the run's directory that are reserved for rtrain.
[[nodiscard]] inline std::vector<std::string> own_names() {
    std::vector<std::string> names(log_files.begin(), log_files.end());
    names.insert(names.end(), other_files.begin(), other_files.end());
    return names;
}

[[nodiscard]] inline std::string first_part(const std::filesystem::path& path) {
    return path.empty() ? std::string() : path.begin()->string();
}

/// The reserved names, and those that trackers write.
[[nodiscard]] inline std::vector<std::string> names_in_use(const RunConfig& run) {
    std::vector<std::string> names = own_names();
    for (const AnyTracker& tracker : run.trackers) {
        if (const std::string output = tracker.output(); !output.empty()) {
            names.push_back(first_part(std::filesystem::path(output).lexically_normal()));
        }
    }
    return names;
}

/// Throws CheckpointError [RT-K9] if a checkpoint shall get a name in use.
inline void require_free_name(const std::vector<std::string>& in_use, const std::string& wished) {
    if (std::ranges::find(in_use, wished) != in_use.end()) {
        throw CheckpointError(
            "RT-K9", rtrain::detail::concat("checkpoint_dir_name \"", wished,
                                            "\" is used by rtrain or a tracker in the run's "
                                            "directory; choose a different name"));
    }
}

/// The logs and the output of trackers: files and directories that are copied to a storage service.
[[nodiscard]] inline std::vector<std::string> logs_of(const RunConfig& run) {
    std::vector<std::string> logs(log_files.begin(), log_files.end());
    if (!run.trackers.empty()) {
        logs.insert(logs.begin(), trackers_file); // before the files that it describes
    }
    for (const AnyTracker& tracker : run.trackers) {
        if (std::string output = tracker.output(); !output.empty()) {
            logs.push_back(std::move(output));
        }
    }
    return logs;
}

} // namespace rtrain::track
