// SPDX-License-Identifier: Apache-2.0
/// @file
/// Option structs for designated initialisers; names and defaults follow Ray Train.
/// Cost tier 1: std and Boost.JSON. `TrainerOptions`, which also holds data sets, is in
/// rtrain/run/options.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/config/callback.hpp>
#include <rtrain/config/console.hpp>
#include <rtrain/config/logging.hpp>
#include <rtrain/config/score_order.hpp>
#include <rtrain/config/stop.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/transfer_config.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain {

/// How many ranks: a number, or a range within which a run may lose and regain ranks.
///
/// @code
/// ScalingConfig fixed{.num_workers = 4};
/// ScalingConfig elastic{.num_workers = {2, 8}};
/// @endcode
class NumWorkers {
public:
    /// As many as the launcher gives; 1 when there is none.
    constexpr NumWorkers() noexcept = default;
    constexpr NumWorkers(std::nullopt_t) noexcept {} // NOLINT(google-explicit-constructor)
    constexpr NumWorkers(int count) noexcept         // NOLINT(google-explicit-constructor)
        : NumWorkers(count, count) {}
    /// At least `min`, at most `max`: each start takes as many as there is room for.
    constexpr NumWorkers(int min, int max) noexcept : min_(min), max_(max), is_set_(true) {}
    constexpr NumWorkers(std::optional<int> count) noexcept // NOLINT(google-explicit-constructor)
        : NumWorkers(count ? NumWorkers(*count) : NumWorkers()) {}

    /// Whether it is set.
    [[nodiscard]] constexpr bool has_value() const noexcept { return is_set_; }
    [[nodiscard]] constexpr explicit operator bool() const noexcept { return is_set_; }
    [[nodiscard]] constexpr int min() const noexcept { return min_; } ///< fewest ranks
    [[nodiscard]] constexpr int max() const noexcept { return max_; } ///< most ranks
    /// Whether it is a range.
    [[nodiscard]] constexpr bool is_elastic() const noexcept { return min_ != max_; }
    /// The number, of a range the largest.
    [[nodiscard]] constexpr int operator*() const noexcept { return max_; }
    /// The most ranks when set, else `count`.
    [[nodiscard]] constexpr int value_or(int count) const noexcept {
        return is_set_ ? max_ : count;
    }
    /// Whether a run may have so many ranks.
    [[nodiscard]] constexpr bool allows(int count) const noexcept {
        return !is_set_ || (min_ <= count && count <= max_);
    }
    friend constexpr bool operator==(const NumWorkers&, const NumWorkers&) noexcept = default;

private:
    int min_ = 1;
    int max_ = 1;
    bool is_set_ = false;
};

/// How many ranks train, and on what.
struct ScalingConfig {
    /// Ranks, at least 1. Unset: as many as mpirun gave; when the program was started alone, one for
    /// each GPU of the machine if use_gpu is set, else 1.
    /// When set, what mpirun gave must be within it (RT-C2).
    NumWorkers num_workers{};
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
    /// How often a run that has fewer ranks than it may have looks for room for more, in seconds.
    double elastic_resize_monitor_interval_s = 60;
};

/// When a rank that makes no progress counts as hung. Progress is a batch, a backward pass, a
/// report, a part of a checkpoint. A program started alone watches its ranks; those of mpirun and
/// srun watch each other.
struct HangConfig {
    bool enabled = true; ///< false: nobody looks for hung ranks
    /// Limit for joining the others and taking up the run, in seconds.
    double start_s = 600;
    /// Limit for a deadlock, in seconds: every rank waits for others inside rtrain.
    double idle_s = 60;
    /// Limit while a rank is at work outside rtrain, whether it computes, waits for a child process
    /// or sleeps, in seconds. Worker::heartbeat() begins it again.
    double busy_s = 600;
    /// Both limits are at least this many times the longest pause between two steps of progress in
    /// the last half hour; idle_s by pauses in which all ranks waited.
    double factor = 10;
    /// Limit for a rank whose process is stopped (SIGSTOP), in seconds.
    double stopped_s = 10;
    /// Limit for a rank that does not report while others do, in seconds.
    double silent_s = 10;
};

/// What happens after a failure.
struct FailureConfig {
    /// How often a run is restarted, from its newest checkpoint, after a rank has died, hung or
    /// thrown; -1: without limit. A rank that has thrown is restarted in its process, everything
    /// else needs a program started alone; under mpirun, start the same command again.
    int max_failures = 0;
    /// How often a start is tried again when ranks end before they train; -1: without limit.
    int controller_failure_limit = 3;
    /// How often a run is restarted because its ranks, but not the program that has started them,
    /// were told to make room; -1: without limit.
    int max_preemption_failures = -1;
    /// Pause before a restart, in seconds: none after the first failure; then this, doubled with
    /// each failure without progress in between, up to `backoff_max_s`.
    double backoff_s = 0.5;
    double backoff_max_s = 30; ///< longest pause, in seconds
    /// How long ranks may take to save and end when the run is to make room, in seconds.
    double preemption_grace_s = 30;
    /// Called by the driver, or by rank 0 under mpirun, each second from a thread of its own: true
    /// when this run is to save and end, for example because the cloud has announced to take the
    /// machine.
    std::function<bool()> preemption_notice{};
    /// After a rank has died, the others go on in their processes with fewer ranks, as far as
    /// num_workers allows, instead of all being started anew. Takes Open MPI 5 with ULFM; under
    /// mpirun, `mpirun --with-ft ulfm`. Where that is not given, all is as without.
    /// docs/recovery.md has the details.
    bool keep_survivors = false;
    HangConfig hang{}; ///< when ranks count as hung
};

/// Which checkpoints stay on disk.
struct CheckpointConfig {
    /// Checkpoints to keep, at least 1 (RT-C3). Unset: all. The newest is never deleted.
    std::optional<int> num_to_keep{};
    /// Metric that ranks checkpoints; "a/b" reads a nested one. Unset: the newer, the better.
    /// A checkpoint without the metric, or with NaN or an infinity, ranks lowest.
    std::optional<std::string> score_attribute{};
    /// Whether a larger ("max") or a smaller ("min") score is better. Ties: the newer is better.
    ScoreOrder score_order = ScoreOrder::max;
    /// Of the reports of a state, how many go without saving it: with n, every n-th saves, the
    /// others record metrics only. 0 or 1: each one saves.
    int frequency = 0;
    /// Seconds of training between two failures, on average, of the whole run; more than 0 (RT-C3).
    /// If set, time decides instead of `frequency`, which must stay 0 (RT-C19): a report of a state
    /// saves it when sqrt(2 C M) seconds have passed since the last checkpoint, with this time M
    /// and the seconds C that training was seen to wait for one (checkpoint/interval.hpp). Rank 0's
    /// clock counts. Unset: `frequency` decides.
    std::optional<double> mean_time_between_failures_s{};
    /// Whether the report of the last epoch of worker.epochs() saves, due or not.
    bool at_end = false;
    /// Of a policy that writes in the background: whether parameters of prepared models, and what
    /// prepared optimizers keep for them, are copied behind the report, while training goes on
    /// (docs/checkpoints.md). Nothing may write them then before the next step but prepared
    /// optimizers, edit(), State::load and load_weights(), or the checkpoint is not written
    /// (RT-K28). Unset: those of sharded models, which nothing else writes. true: those of all
    /// prepared models. false: none.
    std::optional<bool> late_copies{};
};

/// What to look at closely. `.profile = {.steps = {100, 110}}` leaves trace.json in the run's
/// directory at the report behind it: what each rank did in steps 100 to 109, operator by operator,
/// for Perfetto.
struct ProfileConfig {
    /// From the first, before the last; 0 <= first <= last (RT-C38). A step is a backward pass of a
    /// prepared model, counted by each rank from 0 when its training function begins.
    struct Steps {
        std::int64_t first = 0; ///< first step that is recorded
        std::int64_t last = 0;  ///< first step that is not
    };
    Steps steps{}; ///< none
};

/// What a run does with what another start under its name has left. The word will do: "never".
class Resume {
public:
    enum Value : unsigned char {
        automatic, ///< resumes it; throws ConfigError [RT-C50] if it is a different run
        never,     ///< starts over; the old directory is kept under a different name
        always     ///< resumes it, whatever has changed
    };

    constexpr Resume(Value value) noexcept : value_(value) {} // NOLINT(google-explicit-*)
    /// Throws ConfigError [RT-C51].
    Resume(std::string_view name) // NOLINT(google-explicit-*)
        : value_(name == "automatic" ? automatic
                 : name == "never"   ? never
                                     : always) {
        if (name != "automatic" && name != "never" && name != "always") {
            throw ConfigError(
                "RT-C51", detail::concat("run.resume is \"", name,
                                         "\"; expected \"automatic\", \"never\" or \"always\""));
        }
    }
    Resume(const char* name) : Resume(std::string_view(name)) {} // NOLINT(google-explicit-*)

    [[nodiscard]] constexpr operator Value() const noexcept { return value_; } // NOLINT

private:
    Value value_;
};

/// Where a run lives. The same name and storage path again continue that run from its newest
/// checkpoint.
struct RunConfig {
    /// Directory name of the run: letters, digits, '.', '_', '-'. Empty:
    /// `rtrain_run-<date>-<random digits>`.
    std::string name{};
    /// Parent directory: a path, absolute or relative to the working directory, that all ranks see;
    /// or a URI such as "s3://bucket/path" (rtrain/storage/arrow.hpp). Empty: `~/rtrain_results`.
    std::filesystem::path storage_path{};
    FailureConfig failure{};       ///< what follows a failure
    CheckpointConfig checkpoint{}; ///< which checkpoints are made and stay
    /// A file system of your own (concept storage::Filesystem); storage_path is then a path in it.
    std::optional<storage::AnyFilesystem> storage_filesystem{};
    /// How patient rtrain is with a storage service.
    storage::TransferConfig transfer{};
    /// What hears of the run: see config/callback.hpp. The same on all ranks.
    std::vector<track::AnyCallback> callbacks{};
    /// When the run stops, by its reports: one condition or several, of which any counts. A
    /// condition that cannot judge a report ends the run with ConfigError [RT-C32].
    stop::Conditions stop{};
    /// What shows the reports to people, besides result.json and progress.csv; see
    /// docs/tracking.md. Each has a thread of its own on rank 0.
    std::vector<track::AnyTracker> trackers{};
    ConsoleConfig console{}; ///< what is shown on the terminal: docs/console.md
    LoggingConfig logging{}; ///< what is logged, and where: docs/logs.md
    ProfileConfig profile{}; ///< steps to look at closely
    /// Whether the run resumes what an earlier start under the same name has left. A different
    /// configuration, training function or data set makes it a different run: docs/recovery.md.
    Resume resume = Resume::automatic;
    /// With n > 0, a trial of the whole program: one epoch, at most n batches in each loop and n
    /// steps of worker.steps(), without checkpoints and trackers, in `<name>.fast_dev_run`.
    int fast_dev_run = 0;
};

} // namespace rtrain
