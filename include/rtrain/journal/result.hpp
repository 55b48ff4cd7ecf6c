// SPDX-License-Identifier: Apache-2.0
/// @file
/// Result: what a run has left, from `fit()` or from its directory.
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

/// A number of a report, "a/b" for a nested one; what JSON has no number for comes back as NaN or
/// an infinity. (A JSON value itself prints 0.025 as 2.5E-2.) Throws ConfigError [RT-C26] when the
/// report has no such number.
[[nodiscard]] double metric_of(const Config& report, std::string_view name);

/// What a run has left: what fit() returns, and what from_path() reads later.
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
    /// Which condition of RunConfig::stop has stopped the run, and why; empty when none has.
    std::string stop_reason;

    /// Reads a run's directory: a path, a URI, or a path in `filesystem`. Checkpoints that are not
    /// sound by their manifest are left out. Throws StorageError [RT-S6] when it is no run.
    [[nodiscard]] static Result
    from_path(const std::filesystem::path& run_directory,
              std::optional<storage::AnyFilesystem> filesystem = std::nullopt);

    /// A number of the last report: `std::cout << result.metric("loss")`. Throws what
    /// rtrain::metric_of() throws.
    [[nodiscard]] double metric(std::string_view name) const {
        return rtrain::metric_of(metrics, name);
    }

    /// The kept checkpoint with the best value of a metric; "a/b" reads a nested one. Throws
    /// ConfigError [RT-C8] when no checkpoint has it.
    [[nodiscard]] Checkpoint get_best_checkpoint(const std::string& metric, ScoreOrder order) const;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/journal/result_definitions.hpp>
#endif
