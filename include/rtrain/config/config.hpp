// SPDX-License-Identifier: Apache-2.0
/// @file
/// Option structs for designated initialisers; names and defaults follow Ray Train.
/// Cost tier 1: std and Boost.JSON. `TrainerOptions`, which also holds data sets, is in
/// rtrain/run/options/options.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/name_table.hpp>
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

/// The number of ranks: fixed, or a range within which a run may lose and regain ranks.
///
/// @code
/// ScalingConfig fixed{.num_workers = 4};
/// ScalingConfig elastic{.num_workers = {2, 8}};
/// @endcode
class NumWorkers {
public:
    /// The launcher's number of ranks; 1 without a launcher.
    constexpr NumWorkers() noexcept = default;
    constexpr NumWorkers(std::nullopt_t) noexcept {} // NOLINT(google-explicit-constructor)
    constexpr NumWorkers(int count) noexcept         // NOLINT(google-explicit-constructor)
        : NumWorkers(count, count) {}
    /// At least `min`, at most `max`: each start uses as many ranks as fit.
    constexpr NumWorkers(int min, int max) noexcept : min_(min), max_(max), is_set_(true) {}
    constexpr NumWorkers(std::optional<int> count) noexcept // NOLINT(google-explicit-constructor)
        : NumWorkers(count ? NumWorkers(*count) : NumWorkers()) {}

    /// True if set.
    [[nodiscard]] constexpr bool has_value() const noexcept { return is_set_; }
    [[nodiscard]] constexpr explicit operator bool() const noexcept { return is_set_; }
    [[nodiscard]] constexpr int min() const noexcept { return min_; } ///< fewest ranks
    [[nodiscard]] constexpr int max() const noexcept { return max_; } ///< most ranks
    /// True if this is a range.
    [[nodiscard]] constexpr bool is_elastic() const noexcept { return min_ != max_; }
    /// The number of ranks; the maximum of a range.
    [[nodiscard]] constexpr int operator*() const noexcept { return max_; }
    /// The maximum if set, else `count`.
    [[nodiscard]] constexpr int value_or(int count) const noexcept {
        return is_set_ ? max_ : count;
    }
    /// True if a run may have `count` ranks.
    [[nodiscard]] constexpr bool allows(int count) const noexcept {
        return !is_set_ || (min_ <= count && count <= max_);
    }
    friend constexpr bool operator==(const NumWorkers&, const NumWorkers&) noexcept = default;

private:
    int min_ = 1;
    int max_ = 1;
    bool is_set_ = false;
};

/// The number of ranks, and their resources.
struct ScalingConfig {
    /// Ranks, at least 1. Unset: the number that mpirun started; without mpirun, one per GPU of the
    /// machine if use_gpu is set, else 1. If set, the number that mpirun started must be within it
    /// (RT-C2).
    NumWorkers num_workers{};
    /// Train on GPUs; requires a backend with devices (RT-C5). backend::Nccl always uses GPUs.
    bool use_gpu = false;
    /// GPUs per rank, for backends with devices. 0.5: two ranks share a GPU; 2: a rank owns two and
    /// computes on the first. Below 1 any fraction, above 1 whole numbers (RT-N3).
    double gpus_per_worker = 1;
    /// Intra-op threads per rank. 0: OMP_NUM_THREADS if set, else the cores available to this rank
    /// divided by the ranks that share them.
    int threads_per_worker = 0;
    /// Additional arguments for the mpirun that the driver launches, for example
    /// `{"--hostfile", "hosts"}`.
    std::vector<std::string> mpirun_args{};
    /// Interval, in seconds, at which a run below its maximum number of ranks checks for free
    /// slots.
    double elastic_resize_monitor_interval_s = 60;
};

/// Hang detection: when a rank that makes no progress counts as hung. Progress is a batch, a
/// backward pass, a report, or a part of a checkpoint. The driver watches its ranks; ranks of
/// mpirun and srun watch each other.
struct HangConfig {
    bool enabled = true; ///< false: hung ranks are not detected
    /// Limit for joining the other ranks and resuming the run, in seconds.
    double start_s = 600;
    /// Limit for a deadlock, in seconds: every rank waits for other ranks inside rtrain.
    double idle_s = 60;
    /// Limit while a rank is busy outside rtrain (computing, waiting for a child process, or
    /// sleeping), in seconds. Worker::heartbeat() resets it.
    double busy_s = 600;
    /// Lower bound on both limits: this many times the longest pause between two steps of progress
    /// in the last half hour. For idle_s, only pauses in which all ranks waited count.
    double factor = 10;
    /// Limit for a rank whose process is stopped (SIGSTOP), in seconds.
    double stopped_s = 10;
    /// Limit for a rank that does not report while others do, in seconds.
    double silent_s = 10;
};

/// Failure handling.
struct FailureConfig {
    /// Maximum number of restarts, from the newest checkpoint, after a rank has died, hung or
    /// thrown; -1: no limit. A rank that has thrown is restarted in its process; all other restarts
    /// require the driver. Under mpirun, run the same command again.
    int max_failures = 0;
    /// Maximum number of retries when ranks exit before they train; -1: no limit.
    int controller_failure_limit = 3;
    /// Maximum number of restarts because the ranks, but not the driver, were preempted; -1: no
    /// limit.
    int max_preemption_failures = -1;
    /// Pause before a restart, in seconds: none after the first failure; then this value, doubled
    /// with each failure without progress in between, up to `backoff_max_s`.
    double backoff_s = 0.5;
    double backoff_max_s = 30; ///< longest pause, in seconds
    /// Time that ranks have to save and exit when the run is preempted, in seconds.
    double preemption_grace_s = 30;
    /// Preemption notice, polled every second by the driver, or by rank 0 under mpirun, from its
    /// own thread. Returns true if this run must save and exit, for example because the cloud
    /// provider will reclaim the machine.
    std::function<bool()> preemption_notice{};
    /// After a rank has died, the survivors continue in their processes with fewer ranks, as far as
    /// num_workers allows, instead of all ranks being restarted. Requires Open MPI 5 with ULFM;
    /// under mpirun, `mpirun --with-ft ulfm`. Without ULFM, this option has no effect. See
    /// docs/recovery.md.
    bool keep_survivors = false;
    HangConfig hang{}; ///< when ranks count as hung
};

/// Checkpoint retention and frequency.
struct CheckpointConfig {
    /// Number of checkpoints to keep, at least 1 (RT-C3). Unset: all. The newest is never deleted.
    std::optional<int> num_to_keep{};
    /// Metric that ranks checkpoints; "a/b" reads a nested one. Unset: newer is better. A
    /// checkpoint without the metric, or with NaN or an infinity, ranks lowest.
    std::optional<std::string> score_attribute{};
    /// Whether a larger ("max") or a smaller ("min") score is better. Ties: newer is better.
    ScoreOrder score_order = ScoreOrder::max;
    /// With n > 1, only every n-th report of a state saves it; the others record metrics only. 0 or
    /// 1: each one saves.
    int frequency = 0;
    /// Mean time between failures of the whole run, in seconds of training; more than 0 (RT-C3). If
    /// set, `frequency` must stay 0 (RT-C19), and time decides: a report of a state saves it if
    /// sqrt(2 C M) seconds have passed since the last checkpoint. M is this time, and C the
    /// measured seconds that training waits for a checkpoint (checkpoint/store/interval.hpp). Rank
    /// 0's clock counts. Unset: `frequency` decides.
    std::optional<double> mean_time_between_failures_s{};
    /// True: the report of the last epoch of worker.epochs() saves, due or not.
    bool at_end = false;
    /// For a policy that writes in the background: whether parameters of prepared models, and the
    /// state that prepared optimizers keep for them, are copied after the report, while training
    /// continues (docs/checkpoints.md). Before the next step, only prepared optimizers, edit(),
    /// State::load and load_weights() may then write them; otherwise the checkpoint is not written
    /// (RT-K28). Unset: true for sharded models, which nothing else writes. true: all prepared
    /// models. false: none.
    std::optional<bool> late_copies{};
};

/// Profiler settings. `.profile = {.steps = {100, 110}}` writes trace.json to the run's directory
/// at the next report: each rank's steps 100 to 109, operator by operator, for Perfetto.
struct ProfileConfig {
    /// The half-open range [first, last); 0 <= first <= last (RT-C38). A step is a backward pass of
    /// a prepared model, counted by each rank from 0 when its training function begins.
    struct Steps {
        std::int64_t first = 0; ///< first recorded step
        std::int64_t last = 0;  ///< first step after them
    };
    Steps steps{}; ///< none
};

/// Resume policy for earlier results under the same name. Also constructible from a name: "never".
class Resume {
public:
    enum Value : unsigned char {
        automatic, ///< resumes it; throws ConfigError [RT-C50] if it is a different run
        never,     ///< starts over; the old directory is kept under a different name
        always     ///< resumes it, whatever has changed
    };
    static constexpr auto names =
        detail::name_table<Value>({{automatic, "automatic"}, {never, "never"}, {always, "always"}});

    constexpr Resume(Value value) noexcept : value_(value) {} // NOLINT(google-explicit-*)
    /// Throws ConfigError [RT-C51].
    Resume(std::string_view name) // NOLINT(google-explicit-*)
        : value_(names.parse(name).value_or(automatic)) {
        if (!names.parse(name)) {
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

/// The name and location of a run. The same name and storage path resume that run from its newest
/// checkpoint.
struct RunConfig {
    /// Directory name of the run: letters, digits, '.', '_', '-'. Empty:
    /// `rtrain_run-<date>-<random digits>`.
    std::string name{};
    /// Parent directory: a path, absolute or relative to the working directory, visible to all
    /// ranks; or a URI such as "s3://bucket/path" (rtrain/storage/arrow.hpp). Empty:
    /// `~/rtrain_results`.
    std::filesystem::path storage_path{};
    FailureConfig failure{};       ///< failure handling
    CheckpointConfig checkpoint{}; ///< checkpoint retention and frequency
    /// A custom file system (concept storage::Filesystem); storage_path is then a path in it.
    std::optional<storage::AnyFilesystem> storage_filesystem{};
    /// Parallelism, retries and timeouts for storage services.
    storage::TransferConfig transfer{};
    /// Callbacks of the run: see config/callback.hpp. The same on all ranks.
    std::vector<track::AnyCallback> callbacks{};
    /// Conditions that stop the run, evaluated on its reports; any of them suffices. A condition
    /// that cannot evaluate a report ends the run with ConfigError [RT-C32].
    stop::Conditions stop{};
    /// Trackers, which show the reports in addition to result.json and progress.csv; see
    /// docs/tracking.md. Each has its own thread on rank 0.
    std::vector<track::AnyTracker> trackers{};
    ConsoleConfig console{}; ///< terminal output: docs/console.md
    LoggingConfig logging{}; ///< logs: docs/logs.md
    ProfileConfig profile{}; ///< steps to profile
    /// Whether the run resumes an earlier run under the same name. A different configuration,
    /// training function or data set makes it a different run: docs/recovery.md.
    Resume resume = Resume::automatic;
    /// With n > 0, a smoke test of the whole program: one epoch, at most n batches in each loop and
    /// n steps of worker.steps(), without checkpoints and trackers, in `<name>.fast_dev_run`.
    int fast_dev_run = 0;
};

} // namespace rtrain
