// SPDX-License-Identifier: Apache-2.0
/// @file
/// sync(): brings a run's reports to the servers that its trackers could not reach.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/track/http_message.hpp>
#include <rtrain/track/log_reader.hpp>
#include <rtrain/track/mlflow.hpp>
#include <rtrain/track/pending_rewind.hpp>
#include <rtrain/track/replay.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace rtrain::track {

namespace detail {

/// What counts of a run that is not under way.
[[nodiscard]] inline RunInfo info_of(const std::filesystem::path& directory) {
    RunInfo info{.name = directory.filename().string(),
                 .directory = directory,
                 .location = directory.string(),
                 .attempt = "sync",
                 .resumed = true};
    LogReader lines(directory / results_file);
    while (const auto text = lines.line()) {
        const Config report = json::parse(*text).as_object();
        info.position.iteration = number_of(report);
        if (const auto* const config = report.if_contains("config"); config->is_object()) {
            info.config = config->get_object();
        }
        lines.pass();
    }
    return info;
}

/// Gives a tracker what it lacks of the run's logs, and tells it how the run has ended.
inline void catch_up(const AnyTracker& tracker, const RunInfo& info) {
    tracker.start(info);
    const Position noted = PendingRewind::noted_in(info.directory);
    replay(tracker, info.directory,
           {.iteration = std::min(info.position.iteration, noted.iteration)});
    const bool has_failed = std::filesystem::exists(info.directory / error_file);
    tracker.finish(has_failed ? Ending::failed : Ending::finished);
}

} // namespace detail

/// For a run in a local directory that is not under way: trackers of servers that have left a note
/// there get what they lack, and hear that the run has finished, or failed. Returns those notes.
/// Throws StorageError [RT-S4] without a result.json, Error [RT-V61] to [RT-V65] when a server does
/// not take it; another call goes on from there. `https` is for those at https://..., which else
/// are a ConfigError [RT-V66].
inline std::vector<std::filesystem::path> sync(const std::filesystem::path& run_directory,
                                               const HttpSender& https = {}) {
    const auto directory = std::filesystem::canonical(run_directory);
    const RunInfo info = detail::info_of(directory);
    std::vector<std::filesystem::path> notes;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
        if (entry.path().extension() == ".json" && entry.is_regular_file() &&
            entry.path().filename() != results_file && MlFlow::has_left(entry.path())) {
            notes.push_back(entry.path());
        }
    }
    std::sort(notes.begin(), notes.end());
    for (const auto& note : notes) {
        detail::catch_up(MlFlow({.file = note.filename().string(), .https = https}), info);
    }
    return notes;
}

} // namespace rtrain::track
