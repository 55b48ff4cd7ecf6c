// SPDX-License-Identifier: Apache-2.0
/// @file
/// replay(): brings a tracker up to date with the logs of a run that is not running.
#pragma once

#include <rtrain/config/tracker.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/track/lines/log_cursor.hpp>
#include <rtrain/track/lines/log_reader.hpp>

#include <cstdint>
#include <filesystem>
#include <limits>

namespace rtrain::track {

/// Rewinds `tracker`, which was started, to `to`, and then writes all later lines of the logs in
/// `directory` to it.
inline void replay(const AnyTracker& tracker, const std::filesystem::path& directory, Position to) {
    const Position at = tracker.rewind(to);
    int kept = 0;
    const auto write = [&](const Line& line) {
        if (kept >= tracker.lines_together()) {
            tracker.flush();
            kept = 0;
        }
        tracker.write(line);
        ++kept;
    };
    const auto deliver = [&](LogCursor lane, std::int64_t begin) {
        constexpr LogEnd all{LogReader::to_its_end, std::numeric_limits<std::int64_t>::max()};
        lane.resume(directory, begin, all);
        lane.deliver(all, write, [] { return true; });
    };
    deliver(LogCursor(results_file, iteration_field, false), at.iteration);
    if (std::filesystem::exists(directory / steps_file)) {
        deliver(LogCursor(steps_file, step_field, true), at.step);
    }
    tracker.flush();
}

} // namespace rtrain::track
