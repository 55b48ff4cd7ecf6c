// SPDX-License-Identifier: Apache-2.0
/// @file
/// The checkpoints that a run may resume from. Nothing in it is collective.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/journal/run_log.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::detail {

/// Their names, newest first, those in `skip` last. Rejects those whose metrics are damaged.
[[nodiscard]] inline std::vector<std::string>
names_to_resume_from(checkpoint::Store& store, const std::vector<std::string>& skip) {
    std::vector<std::string> names;
    std::vector<std::string> skipped;
    for (const auto& item : store.listing().committed) {
        const auto* const time = item.metrics.if_contains(track::RunLog::total_time_field);
        if (!track::has_number(item.metrics) || time == nullptr || !time->is_number()) {
            store.reject(item.name,
                         concat(item.name, "/", checkpoint::manifest_file,
                                " is damaged: its metrics lack a valid ", track::iteration_field,
                                " or ", track::RunLog::total_time_field));
            continue;
        }
        const bool left = std::find(skip.begin(), skip.end(), item.name) != skip.end();
        std::vector<std::string>& list = left ? skipped : names;
        list.insert(list.begin(), item.name);
    }
    names.insert(names.end(), skipped.begin(), skipped.end());
    return names;
}

/// Warns of damaged checkpoints. `newest`: the one that the run resumes from. Throws
/// CheckpointError [RT-K1, RT-K2] if there are checkpoints, but none is intact.
inline void warn_of_damage(const checkpoint::Store& store,
                           const std::optional<Checkpoint>& newest) {
    const auto damaged = store.listing().damaged;
    for (const auto& item : damaged) {
        console::warn("checkpoint %s cannot be used and is left in place: %s", item.name.c_str(),
                      item.reason.c_str());
    }
    if (!damaged.empty() && !newest) {
        throw_error({.code = damaged.back().code,
                     .message = damaged.back().reason + "; no checkpoint of this run is intact: "
                                                        "move them away to start over"});
    }
    if (!damaged.empty()) {
        console::say("resuming from %s", newest->path.filename().c_str());
    }
}

} // namespace rtrain::detail
