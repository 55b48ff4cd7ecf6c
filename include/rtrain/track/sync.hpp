// SPDX-License-Identifier: Apache-2.0
/// @file
/// sync(): brings a run's trackers up to date: servers that were unreachable, and files of a run
/// that was killed.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/process/stdio/standard_streams.hpp> // a standalone program may be started without
#include <rtrain/track/delivery/pending_rewind.hpp>
#include <rtrain/track/delivery/replay.hpp>
#include <rtrain/track/http/http_message.hpp>
#include <rtrain/track/lines/log_reader.hpp>
#include <rtrain/track/mlflow/mlflow.hpp>
#include <rtrain/track/offline/comet.hpp>
#include <rtrain/track/offline/wandb.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::track {

/// The ending of a run in a local directory that is not running; none if it is not recorded,
/// because its processes were killed.
[[nodiscard]] inline std::optional<Ending> ending_of(const std::filesystem::path& run_directory) {
    return std::filesystem::exists(run_directory / error_file)
               ? Ending::failed
               : PendingRewind::ending_in(run_directory);
}

namespace internal {

/// The valid position of a run that is not running.
[[nodiscard]] inline RunInfo info_of(const std::filesystem::path& directory) {
    RunInfo info{.name = directory.filename().string(),
                 .directory = directory,
                 .location = directory.string(),
                 .attempt = "sync",
                 .resumed = true};
    const auto each = [&](const char* file, const char* number_field, const auto& visit) {
        for (LogReader lines(directory / file); const auto text = lines.line(); lines.pass()) {
            try {
                const Config line = json::parse(*text).as_object();
                visit(line, line.at(number_field).to_number<std::int64_t>());
            } catch (const std::bad_alloc&) { // not the line's fault
                throw;
            } catch (const std::exception&) { // a crash can damage lines; replay() also skips them
            }
        }
    };
    each(results_file, iteration_field, [&](const Config& report, std::int64_t number) {
        info.position.iteration = number;
        if (const auto* const config = report.if_contains("config");
            config != nullptr && config->is_object()) {
            info.config = config->get_object();
        }
    });
    if (std::filesystem::exists(directory / steps_file)) {
        each(steps_file, step_field,
             [&](const Config&, std::int64_t number) { info.position.step = number; });
    }
    return info;
}

/// Writes the missing lines to a tracker, and finishes it with the run's ending.
inline void catch_up(const AnyTracker& tracker, const RunInfo& info) {
    tracker.start(info);
    const Position noted = PendingRewind::noted_in(info.directory);
    replay(tracker, info.directory,
           {.iteration = std::min(info.position.iteration, noted.iteration),
            .step = std::min(info.position.step, noted.step)});
    tracker.finish(ending_of(info.directory).value_or(Ending::failed));
}

/// Throws Error [RT-V102] for a link or a pipe: in an untrusted run, it would redirect reads or
/// writes to other files.
inline void require_file(const std::filesystem::path& path) {
    const auto status = std::filesystem::symlink_status(path);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
        !std::filesystem::is_directory(status)) {
        throw Error("RT-V102",
                    rtrain::detail::concat(path.string(),
                                           " is a link or a special file, but sync() accepts "
                                           "only files inside the run; replace it "
                                           "with the file itself"));
    }
}

/// The tracker that wrote this entry of a run's directory, with the same options.
[[nodiscard]] inline std::optional<AnyTracker>
tracker_that_left(const std::filesystem::directory_entry& entry, const HttpSender& https,
                  const std::string& uri) {
    const auto& path = entry.path();
    const std::string name = path.filename().string();
    if (entry.is_symlink()) {
        return std::nullopt;
    }
    if (entry.is_directory()) {
        return Wandb::has_left(path)   ? std::optional<AnyTracker>(Wandb({.directory = name}))
               : Comet::has_left(path) ? std::optional<AnyTracker>(Comet({.directory = name}))
                                       : std::nullopt;
    }
    const bool may_be_note =
        entry.is_regular_file() && path.extension() == ".json" && name != results_file;
    return may_be_note && MlFlow::has_left(path)
               ? std::optional<AnyTracker>(
                     MlFlow::by_note(name, https, !ending_of(path.parent_path()), uri))
               : std::nullopt;
}

} // namespace internal

/// For a run in a local directory that is not running: trackers that have left files there are
/// brought up to date and finished with the run's ending. These are servers (MlFlow), and files for
/// other programs to upload (Wandb, Comet). Returns the files. Throws StorageError [RT-S4] without
/// a result.json, and Error [RT-V61] to [RT-V70] if a tracker fails; another call continues from
/// there; [RT-V102] for links. `https` is for servers at https://..., and is otherwise a
/// ConfigError [RT-V66].
///
/// The run may come from anyone: only files inside it are uploaded, and credentials from the
/// environment go only to the server in `uri` or MLFLOW_TRACKING_URI. The target is shown first.
inline std::vector<std::filesystem::path> sync(const std::filesystem::path& run_directory,
                                               const HttpSender& https = {},
                                               const std::string& uri = {}) {
    const auto directory = std::filesystem::canonical(run_directory);
    for (const std::string& name : own_names()) { // the uploaded report shows the contents of some
        internal::require_file(directory / name);
    }
    const RunInfo info = internal::info_of(directory);
    std::vector<std::filesystem::path> left;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
        if (!internal::tracker_that_left(entry, https, uri)) {
            continue;
        }
        left.push_back(entry.path());
        if (entry.is_directory()) {
            for (const auto& its : std::filesystem::recursive_directory_iterator(entry.path())) {
                internal::require_file(its.path());
            }
        }
    }
    std::sort(left.begin(), left.end());
    for (const auto& path : left) {
        internal::catch_up(
            *internal::tracker_that_left(std::filesystem::directory_entry(path), https, uri), info);
    }
    return left;
}

} // namespace rtrain::track
