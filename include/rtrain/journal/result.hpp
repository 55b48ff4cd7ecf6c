// SPDX-License-Identifier: Apache-2.0
/// @file
/// Result: the outcome of a run, from `fit()` or from its directory.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/storage/filesystem.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain {

/// A number in a report, "a/b" for a nested one; numbers that JSON cannot represent are NaN or an
/// infinity. (A JSON value itself prints 0.025 as 2.5E-2.) Throws ConfigError [RT-C26] if the
/// report has no such number.
[[nodiscard]] double metric_of(const Config& report, std::string_view name);

/// The outcome of a run, returned by fit() or read later by from_path().
struct Result {
    /// The last report: rank 0's metrics, and the fields that rtrain fills in
    /// (`training_iteration`, `time_total_s`, ...).
    Config metrics;
    /// Every report, oldest first.
    std::vector<Config> metrics_history;
    /// The newest checkpoint.
    std::optional<Checkpoint> checkpoint;
    /// The checkpoints that were kept, oldest first, each with the report in which it was made.
    std::vector<std::pair<Checkpoint, Config>> best_checkpoints;
    /// The run's directory: a path or a URI, or, with a custom file system, a path in it.
    std::filesystem::path path;
    /// The reason that the run failed, if it did.
    std::optional<Error> error;
    /// The file system of `path`, unless it is local.
    std::optional<storage::AnyFilesystem> filesystem;
    /// The condition of RunConfig::stop that stopped the run, and the reason; empty if none did.
    std::string stop_reason;

    /// Reads a run's directory: a path, a URI, or a path in `filesystem`. Omits checkpoints that do
    /// not match their manifest. Throws StorageError [RT-S6] if it is not a run.
    [[nodiscard]] static Result
    from_path(const std::filesystem::path& run_directory,
              std::optional<storage::AnyFilesystem> filesystem = std::nullopt);

    /// A number in the last report: `std::cout << result.metric("loss")`. Throws like
    /// rtrain::metric_of().
    [[nodiscard]] double metric(std::string_view name) const {
        return rtrain::metric_of(metrics, name);
    }

    /// The kept checkpoint with the best value of a metric; "a/b" reads a nested one. Throws
    /// ConfigError [RT-C8] if no checkpoint has it.
    [[nodiscard]] Checkpoint get_best_checkpoint(const std::string& metric, ScoreOrder order) const;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/journal/result_definitions.hpp>
#endif
