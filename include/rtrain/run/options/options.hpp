// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrainerOptions, and the checks that need no ranks.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/config/config_checks.hpp>
#include <rtrain/config/typed_config.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/run/options/stop_check.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

/// Options of a Trainer, for designated initializers.
struct TrainerOptions {
    /// Passed to the training function, and stored in params.json and in every report. JSON or a
    /// struct: docs/configuration.md.
    TrainConfig config{};
    ScalingConfig scaling{}; ///< the number of ranks and their resources
    RunConfig run{};         ///< name, storage and behavior of the run
    /// Read with `worker.dataset_shard(name)`.
    data::Datasets datasets{};
    /// Checkpoint that a new run starts from. A run that has its own checkpoints resumes from
    /// those.
    std::optional<Checkpoint> resume_from{};
    /// Added to the metadata of every checkpoint; a report's value for the same key wins.
    Config metadata{};
    /// Validation of the checkpoints whose reports request it.
    ValidationConfig validation{};
    /// Names of the data sets that are split between ranks, according to their policy; each rank
    /// reads the others whole. Unset: all are split.
    std::optional<std::vector<std::string>> datasets_to_split{};
};

namespace detail {

/// Throws ConfigError [RT-C52].
inline void check_fast_dev_run(int batches) {
    if (batches < 0) {
        throw ConfigError("RT-C52", concat("run.fast_dev_run is ", batches,
                                           "; expected a number of batches, or 0 for a whole run"));
    }
}

/// Throws ConfigError [RT-C38].
inline void check_profile(const ProfileConfig& profile) {
    const auto [first, last] = profile.steps;
    if (first < 0 || last < first) {
        throw ConfigError("RT-C38",
                          concat("profile.steps is {", first, ", ", last,
                                 "}; expected the first step, from 0, and the one after the last"));
    }
}

/// Throws ConfigError [RT-C29].
inline void check_datasets_to_split(const TrainerOptions& options) {
    for (const auto& name : options.datasets_to_split.value_or(std::vector<std::string>{})) {
        if (!options.datasets.contains(name)) {
            std::string names;
            for (const auto& [known, dataset] : options.datasets) {
                names += concat(names.empty() ? "" : ", ", '"', known, '"');
            }
            throw ConfigError("RT-C29",
                              concat("datasets_to_split names \"", name, "\", but datasets has ",
                                     names.empty() ? "none" : names));
        }
    }
}

/// Throws ConfigError [RT-C30].
inline void check_trackers(const std::vector<track::AnyTracker>& trackers) {
    const std::vector<std::string> own = track::own_names();
    std::vector<std::string> outputs;
    for (const track::AnyTracker& tracker : trackers) {
        const std::string output = tracker.output();
        const auto path = std::filesystem::path(output).lexically_normal();
        if (output.empty()) {
            continue;
        }
        if (path.is_absolute() || *path.begin() == ".." || *path.begin() == "." ||
            output.starts_with("checkpoint_") || output.starts_with(".rtrain-") ||
            output.starts_with(".lock") || output.starts_with(".validate_storage_marker")) {
            throw ConfigError("RT-C30",
                              concat("a tracker writes to \"", output,
                                     "\"; use a path inside the run's directory that does not "
                                     "begin with checkpoint_ or like one of rtrain's own files"));
        }
        if (std::ranges::find(own, track::first_part(path)) != own.end()) {
            throw ConfigError("RT-C30",
                              concat("a tracker writes to \"", output,
                                     "\", which rtrain itself writes; give it a different name"));
        }
        for (const std::string& other : outputs) {
            if (path == other) {
                throw ConfigError(
                    "RT-C30",
                    concat("a tracker writes to \"", output,
                           "\", which another tracker also writes; give it a different name"));
            }
        }
        outputs.push_back(path.string());
    }
}

/// Throws ConfigError for options that are invalid on any machine.
inline void check_options(const TrainerOptions& options) {
    check_scaling(options.scaling);
    check_checkpoint_config(options.run.checkpoint);
    check_storage(options.run);
    check_failure_config(options.run.failure);
    check_trackers(options.run.trackers);
    check_stop(options.run.stop);
    check_console(options.run.console);
    check_profile(options.run.profile);
    check_fast_dev_run(options.run.fast_dev_run);
    check_validation_timeout(options.validation.timeout_s);
    check_datasets_to_split(options);
    check_run_name(options.run.name);
}

} // namespace detail
} // namespace rtrain
