// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a Trainer is made from, and the checks that need no ranks.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/error.hpp>
#include <rtrain/validation.hpp>

#include <optional>
#include <string>

namespace rtrain {

struct TrainerOptions {
    /// Handed to the training function, and kept in params.json and in every report.
    Config config{};
    ScalingConfig scaling{};
    RunConfig run{};
    /// Read with `worker.dataset_shard(name)`.
    data::Datasets datasets{};
    /// Checkpoint that a new run starts from. A run that has checkpoints of its own goes on from
    /// them.
    std::optional<Checkpoint> resume_from{};
    /// Goes into the metadata of every checkpoint; what a report gives under the same key wins.
    Config metadata{};
    /// How checkpoints are validated whose report asks for it.
    ValidationConfig validation{};
};

namespace detail {

/// Throws ConfigError for options that cannot work on any machine.
inline void check_options(const TrainerOptions& options) {
    const auto& workers = options.scaling.num_workers;
    if (workers && *workers < 1) {
        throw ConfigError("RT-C1", concat("num_workers is ", *workers, "; expected at least 1"));
    }
    if (options.scaling.threads_per_worker < 0) {
        throw ConfigError("RT-C9",
                          concat("threads_per_worker is ", options.scaling.threads_per_worker,
                                 "; expected 0 (automatic) or more"));
    }
    const auto& keep = options.run.checkpoint.num_to_keep;
    if (keep && *keep < 1) {
        throw ConfigError("RT-C3", concat("num_to_keep is ", *keep,
                                          "; expected at least 1, or unset to keep all"));
    }
    if (options.run.checkpoint.frequency < 0) {
        throw ConfigError("RT-C3",
                          concat("the checkpoint frequency is ", options.run.checkpoint.frequency,
                                 "; expected 0 or more"));
    }
    const std::string storage_path = options.run.storage_path.string();
    if (options.run.storage_filesystem && storage_path.find("://") != std::string::npos) {
        throw ConfigError("RT-C13", concat("storage_path is ", storage_path,
                                           "; with a storage_filesystem, give a path in it, "
                                           "without a scheme"));
    }
    if (options.run.failure.max_failures < -1) {
        throw ConfigError("RT-C7", concat("max_failures is ", options.run.failure.max_failures,
                                          "; expected 0 or more, or -1 for no limit"));
    }
    check_validation_timeout(options.validation.timeout_s);
    constexpr const char* allowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const std::string& name = options.run.name;
    if (name.find_first_not_of(allowed) != std::string::npos || name.starts_with('.')) {
        throw ConfigError("RT-C4", concat("the run's name is \"", name,
                                          "\"; expected letters, "
                                          "digits, '.', '_', '-', not beginning with '.'"));
    }
}

} // namespace detail
} // namespace rtrain
