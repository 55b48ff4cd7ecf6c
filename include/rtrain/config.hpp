// SPDX-License-Identifier: Apache-2.0
/// @file
/// Option structs for designated initialisers; names and defaults follow Ray Train.
/// Cost tier 1: std and Boost.JSON. `TrainerOptions`, which also holds data sets, is in
/// rtrain/options.hpp.
#pragma once

#include <rtrain/error.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/transfer_config.hpp>

#include <boost/json/object.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain {

/// Hyperparameters and metrics: a JSON object. `config.at("lr").to_number<double>()` reads one.
using Config = boost::json::object;

/// How many ranks train, and on what.
struct ScalingConfig {
    /// Ranks, at least 1. Unset: as many as mpirun gave, or 1 when the program was started alone.
    /// When set, it must equal what mpirun gave (RT-C2).
    std::optional<int> num_workers{};
    /// Train on GPUs; needs a backend with devices (RT-C5). backend::Nccl always does.
    bool use_gpu = false;
    /// GPUs of a rank, for backends with devices. 0.5: two ranks share a GPU; 2: a rank has two for
    /// itself, and computes on the first. Below 1 any fraction, above 1 whole numbers (RT-N3).
    double gpus_per_worker = 1;
    /// Intra-op threads of a rank. 0: OMP_NUM_THREADS if set, else the cores this rank may use
    /// divided by the ranks that share them.
    int threads_per_worker = 0;
    /// Further arguments for the mpirun that a program started alone launches,
    /// for example `{"--hostfile", "hosts"}`.
    std::vector<std::string> mpirun_args{};
};

/// What happens after a failure.
struct FailureConfig {
    /// How often a run is restarted, from its newest checkpoint, after a rank has died or thrown;
    /// -1: without limit. Only a program started alone can restart its ranks; under mpirun, start
    /// the same command again.
    int max_failures = 0;
};

/// "max" or "min": which end of a score is the better one.
class ScoreOrder {
public:
    enum Value : unsigned char { max, min };

    constexpr ScoreOrder(Value value) noexcept : value_(value) {} // NOLINT(google-explicit-*)
    ScoreOrder(std::string_view name) : value_(name == "min" ? min : max) { // NOLINT
        if (name != "min" && name != "max") {
            throw ConfigError("RT-C3", detail::concat("score_order is \"", name,
                                                      "\"; expected \"max\" or \"min\""));
        }
    }
    ScoreOrder(const char* name) : ScoreOrder(std::string_view(name)) {} // NOLINT

    [[nodiscard]] constexpr operator Value() const noexcept { return value_; } // NOLINT

private:
    Value value_;
};

/// Which checkpoints stay on disk.
struct CheckpointConfig {
    /// Checkpoints to keep, at least 1 (RT-C3). Unset: all. The newest is never deleted.
    std::optional<int> num_to_keep{};
    /// Metric that ranks checkpoints; "a/b" reads a nested one. Unset: the newer, the better.
    /// A checkpoint without the metric, or with NaN, ranks lowest.
    std::optional<std::string> score_attribute{};
    /// Whether a larger ("max") or a smaller ("min") score is better. Ties: the newer is better.
    ScoreOrder score_order = ScoreOrder::max;
    /// Of the reports of a state, how many go without saving it: with n, every n-th saves, the
    /// others record metrics only. 0 or 1: each one saves.
    int frequency = 0;
    /// Whether the report of the last epoch of worker.epochs() saves, whatever the frequency.
    bool at_end = false;
};

/// Where a run lives. The same name and storage path again continue that run from its newest
/// checkpoint.
struct RunConfig {
    /// Directory name of the run: letters, digits, '.', '_', '-'. Empty:
    /// `rtrain_run-<date>-<process>`.
    std::string name{};
    /// Parent directory: a path, absolute or relative to the working directory, that all ranks see;
    /// or a URI such as "s3://bucket/path" (rtrain/storage/arrow.hpp). Empty: `~/rtrain_results`.
    std::filesystem::path storage_path{};
    FailureConfig failure{};
    CheckpointConfig checkpoint{};
    /// A file system of your own (concept storage::Filesystem); storage_path is then a path in it.
    std::optional<storage::AnyFilesystem> storage_filesystem{};
    /// How patient rtrain is with a storage service.
    storage::TransferConfig transfer{};
};

} // namespace rtrain
