// SPDX-License-Identifier: Apache-2.0
/// @file
/// Result: what a run has left, from `fit()` or from its directory.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/ranking.hpp>
#include <rtrain/checkpoint/store.hpp>
#include <rtrain/config.hpp>
#include <rtrain/error.hpp>
#include <rtrain/json.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/track/run_log.hpp>

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain {

/// A number of a report, "a/b" for a nested one; what JSON has no number for comes back as NaN or
/// an infinity. (A JSON value itself prints 0.025 as 2.5E-2.) Throws ConfigError [RT-C26] when the
/// report has no such number.
[[nodiscard]] inline double metric(const Config& report, std::string_view name) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const auto* const value = checkpoint::value_at(report, name);
    if (value != nullptr && value->is_number()) {
        return value->to_number<double>();
    }
    if (value != nullptr && (value->is_null() || *value == "inf" || *value == "-inf")) {
        return value->is_null()  ? std::numeric_limits<double>::quiet_NaN()
               : *value == "inf" ? infinity
                                 : -infinity;
    }
    std::string names;
    for (const auto& item : report) {
        names += (names.empty() ? "" : ", ") + std::string(item.key());
    }
    throw ConfigError("RT-C26", detail::concat("the report has no number \"", name, "\"; it has ",
                                               names.empty() ? "nothing" : names));
}

struct Result {
    /// The last report: rank 0's metrics, and the fields that rtrain fills in
    /// (`training_iteration`, `time_total_s`, ...).
    Config metrics;
    /// Every report, oldest first.
    std::vector<Config> metrics_history;
    /// The newest checkpoint.
    std::optional<Checkpoint> checkpoint;
    /// The checkpoints that were kept, oldest first, each with the report it was made in.
    std::vector<std::pair<Checkpoint, Config>> best_checkpoints;
    /// The run's directory: a path or a URI, or, with a file system of your own, a path in it.
    std::filesystem::path path;
    /// Why the run failed, if it did.
    std::optional<Error> error;
    /// Where `path` is, when it is not of this machine.
    std::optional<storage::AnyFilesystem> filesystem;

    /// Where a failed run says why.
    static constexpr const char* error_file = "error.json";

    /// Reads a run's directory: a path, a URI, or a path in `filesystem`. Checkpoints that are not
    /// sound by their manifest are left out. Throws StorageError [RT-S6] when it is no run.
    [[nodiscard]] static Result
    from_path(const std::filesystem::path& run_directory,
              std::optional<storage::AnyFilesystem> filesystem = std::nullopt) {
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
            return at.filesystem.exists(file) ? std::optional(at.filesystem.read(file))
                                              : std::nullopt;
        };
        const auto reports = read(track::results_file);
        if (!reports) {
            throw StorageError("RT-S6", detail::concat(at.filesystem.uri(at.path),
                                                       " is no run of rtrain: it has no ",
                                                       track::results_file));
        }
        std::int64_t durable = 0;
        for (auto& item : checkpoint::list_checkpoints(at).committed) {
            durable = item.metrics.at(track::iteration_field).to_number<std::int64_t>();
            result.checkpoint = item.checkpoint;
            result.best_checkpoints.emplace_back(item.checkpoint, std::move(item.metrics));
        }
        result.metrics_history = track::parse_results(
            *reports, at.filesystem.uri(at.path) + "/" + track::results_file, durable);
        if (!result.metrics_history.empty()) {
            result.metrics = result.metrics_history.back();
        }
        if (const auto text = read(error_file)) {
            const auto saved = json::parse(*text).as_object();
            result.error.emplace(std::string(saved.at("code").as_string()),
                                 std::string(saved.at("message").as_string()));
        }
        return result;
    }

    /// A number of the last report: `std::cout << result.metric("loss")`. Throws what
    /// rtrain::metric() throws.
    [[nodiscard]] double metric(std::string_view name) const {
        return rtrain::metric(metrics, name);
    }

    /// The kept checkpoint with the best value of a metric; "a/b" reads a nested one. Throws
    /// ConfigError [RT-C8] when no checkpoint has it.
    [[nodiscard]] Checkpoint get_best_checkpoint(const std::string& metric,
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
            throw ConfigError("RT-C8",
                              detail::concat("no checkpoint of ", path.string(),
                                             " was reported with a metric \"", metric, "\""));
        }
        return *best;
    }
};

} // namespace rtrain
