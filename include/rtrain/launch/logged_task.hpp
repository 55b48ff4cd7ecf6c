// SPDX-License-Identifier: Apache-2.0
/// @file
/// A Task whose ranks' lines also go to the logs of its run.
#pragma once

#include <rtrain/journal/rank_logs.hpp>
#include <rtrain/launch/supervise/program.hpp>

#include <string>
#include <utility>

namespace rtrain::launch {

/// The same task with `logs`, which outlive it; each start of its ranks begins new ones.
[[nodiscard]] inline Task logged(Task task, track::RankLogs& logs) {
    task.prepare = [&logs, prepare = std::move(task.prepare)](const LaunchRequest& start) {
        logs.begin();
        return prepare(start);
    };
    task.heard = [&logs, heard = std::move(task.heard)](OutputStream stream, const RankLine& line) {
        logs.add(line.rank, stream, line.text);
        if (heard) {
            heard(stream, line);
        }
    };
    task.on_restart = [&logs, on_restart = std::move(task.on_restart)] {
        on_restart();
        logs.begin();
    };
    task.on_run = [&logs, on_run = std::move(task.on_run)](const std::string& run) {
        on_run(run);
        logs.begin();
    };
    return task;
}

} // namespace rtrain::launch
