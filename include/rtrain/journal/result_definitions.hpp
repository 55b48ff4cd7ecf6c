// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door result.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/parsing.hpp>
#include <rtrain/checkpoint/store/ranking.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/storage/locate.hpp>

#include <cstdint>
#include <optional>

namespace rtrain {

RTRAIN_DOOR double metric_of(const Config& report, std::string_view name) {
    const auto* const value = checkpoint::value_at(report, name);
    if (const auto number = value != nullptr ? json::number(*value) : std::nullopt) {
        return *number;
    }
    std::string names;
    for (const auto& item : report) {
        names += (names.empty() ? "" : ", ") + std::string(item.key());
    }
    throw ConfigError("RT-C26", detail::concat("the report has no number \"", name, "\"; it has ",
                                               names.empty() ? "nothing" : names));
}

RTRAIN_DOOR Result Result::from_path(const std::filesystem::path& run_directory,
                                     std::optional<storage::AnyFilesystem> filesystem) {
    storage::Location at = filesystem ? storage::Location{*filesystem, run_directory.string()}
                                      : storage::locate(run_directory);
    Result result;
    if (at.filesystem.is_local()) {
        at.path = std::filesystem::absolute(at.path).lexically_normal().string();
    } else {
        result.filesystem = at.filesystem;
    }
    while (at.path.size() > 1 && at.path.back() == '/') {
        at.path.pop_back();
    }
    result.path = at.path;
    const auto read = [&](const char* name) {
        const std::string file = at.path + "/" + name;
        return at.filesystem.exists(file) ? std::optional(at.filesystem.read(file)) : std::nullopt;
    };
    const auto reports = read(track::results_file);
    if (!reports) {
        throw StorageError("RT-S6", detail::concat(at.filesystem.uri(at.path),
                                                   " is not an rtrain run: it has no ",
                                                   track::results_file));
    }
    std::int64_t durable = 0;
    for (auto& item : checkpoint::list_checkpoints(at).committed) {
        if (!track::has_number(item.metrics)) {
            continue; // a run does not resume from it either
        }
        durable = item.metrics.at(track::iteration_field).to_number<std::int64_t>();
        result.checkpoint = item.checkpoint;
        result.best_checkpoints.emplace_back(item.checkpoint, std::move(item.metrics));
    }
    result.metrics_history = track::parse_results(
        *reports, at.filesystem.uri(at.path) + "/" + track::results_file, durable);
    if (!result.metrics_history.empty()) {
        result.metrics = result.metrics_history.back();
    }
    const auto in = [&](const char* name, const std::string& text, const auto& parse) {
        return detail::parsed([&] { return parse(json::parse_object(text)); },
                              [&](const char* why) {
                                  return StorageError(
                                      "RT-S5", detail::concat(at.filesystem.uri(at.path), "/", name,
                                                              " is damaged: ", why,
                                                              "; remove it, or start the run "
                                                              "again"));
                              });
    };
    if (const auto text = read(track::error_file)) {
        result.error = in(track::error_file, *text, [](const Config& saved) {
            return Error(std::string(saved.at("code").as_string()),
                         std::string(saved.at("message").as_string()));
        });
    }
    if (const auto text = read(track::stop_file)) {
        result.stop_reason = in(track::stop_file, *text, [](const Config& saved) {
            return std::string(saved.at("reason").as_string());
        });
    }
    return result;
}

RTRAIN_DOOR Checkpoint Result::get_best_checkpoint(const std::string& metric,
                                                   ScoreOrder order) const {
    const Checkpoint* best = nullptr;
    double best_score = 0;
    for (const auto& [candidate, report] : best_checkpoints) {
        const auto score = checkpoint::metric_at(report, metric);
        const bool better =
            score && (best == nullptr ||
                      (order == ScoreOrder::max ? *score >= best_score : *score <= best_score));
        if (better) {
            best = &candidate;
            best_score = *score;
        }
    }
    if (best == nullptr) {
        throw ConfigError("RT-C8", detail::concat("no checkpoint of ", path.string(),
                                                  " was reported with a metric \"", metric, "\""));
    }
    return *best;
}

} // namespace rtrain
