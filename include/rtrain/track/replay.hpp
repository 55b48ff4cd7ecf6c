// SPDX-License-Identifier: Apache-2.0
/// @file
/// replay(): gives a tracker what it lacks of the logs of a run that is not under way.
#pragma once

#include <rtrain/config/tracker.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/track/log_lane.hpp>
#include <rtrain/track/log_reader.hpp>

#include <cstdint>
#include <filesystem>
#include <limits>

namespace rtrain::track {

/// Of `tracker`, which was started, what lies behind `to` does not count any more. All lines of the
/// logs in `directory` have come to it on return.
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
    const auto deliver = [&](LogLane lane, std::int64_t begin) {
        constexpr LogEnd all{LogReader::to_its_end, std::numeric_limits<std::int64_t>::max()};
        lane.take_up(directory, begin, all);
        lane.deliver(all, write, [] { return true; });
    };
    deliver(LogLane(results_file, iteration_field, false), at.iteration);
    if (std::filesystem::exists(directory / steps_file)) {
        deliver(LogLane(steps_file, step_field, true), at.step);
    }
    tracker.flush();
}

} // namespace rtrain::track
