// SPDX-License-Identifier: Apache-2.0
/// @file
/// Result: what a run has left, from `fit()` or from its directory.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/store.hpp>
#include <rtrain/config.hpp>
#include <rtrain/error.hpp>
#include <rtrain/json.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/track/run_log.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

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
    /// The run's directory.
    std::filesystem::path path;
    /// Why the run failed, if it did.
    std::optional<Error> error;

    /// Where a failed run says why.
    static constexpr const char* error_file = "error.json";

    /// Reads a run's directory. Throws StorageError [RT-S6] when it is none.
    [[nodiscard]] static Result from_path(const std::filesystem::path& run_directory) {
        if (!std::filesystem::exists(run_directory / track::results_file)) {
            throw StorageError("RT-S6", detail::concat(run_directory.string(),
                                                       " is no run of "
                                                       "rtrain: it has no ",
                                                       track::results_file));
        }
        Result result;
        result.path = std::filesystem::absolute(run_directory).lexically_normal();
        result.metrics_history = track::read_results(run_directory);
        if (!result.metrics_history.empty()) {
            result.metrics = result.metrics_history.back();
        }
        for (auto& item : checkpoint::Store::list(result.path)) {
            result.checkpoint = item.checkpoint;
            result.best_checkpoints.emplace_back(item.checkpoint, std::move(item.metrics));
        }
        if (std::filesystem::exists(run_directory / error_file)) {
            const auto saved =
                json::parse(storage::read_file(run_directory / error_file)).as_object();
            result.error.emplace(std::string(saved.at("code").as_string()),
                                 std::string(saved.at("message").as_string()));
        }
        return result;
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
