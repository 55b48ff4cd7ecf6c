// SPDX-License-Identifier: Apache-2.0
/// @file
/// WorkerReports: reports of metrics and checkpoints.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>
#include <rtrain/checkpoint/policy/any_policy.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/model/ddp/prepared_model.hpp>
#include <rtrain/process/status/user_call.hpp>
#include <rtrain/run/options/report_options.hpp>
#include <rtrain/run/reported_checkpoint.hpp>
#include <rtrain/state/progress.hpp>
#include <rtrain/state/state.hpp>
#include <rtrain/track/lines/step_value.hpp>
#include <rtrain/train/preemption.hpp>
#include <rtrain/train/reported_metric.hpp>
#include <rtrain/train/worker_collectives.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

namespace metric {
class Collection;
} // namespace metric

class Run;

/// Reports and checkpoints of a worker.
class WorkerReports : public WorkerCollectives {
public:
    /// The run's directory, `<storage_path>/<name>`.
    [[nodiscard]] std::filesystem::path run_path() const;

    /// Records rank 0's metrics. *Collective.* Rethrows an error of an earlier background save.
    /// Once RunConfig::stop has stopped the run, the rest of the current epoch reports nothing.
    void report(const Config& metrics);
    /// Records rank 0's metrics and saves a checkpoint of the state, with every rank's random
    /// number generator and the position in every data set. With CheckpointConfig::frequency or
    /// mean_time_between_failures_s, saves only some reports. *Collective.* First compares the
    /// parameters of prepared models between ranks: ModelError [RT-M25] if they differ.
    void report(const Config& metrics, const State& state, const ReportOptions& options = {});
    /// Also records the values of a collection (rtrain/metrics.hpp) over all ranks, which take
    /// precedence over equal names in `metrics`. Then resets its metrics; a state that holds them
    /// is saved after that. Returns the collection's values, the same on all ranks. *Collective.*
    /// Throws Error [RT-V46], and what the metrics' compute() throws.
    Config report(const Config& metrics, metric::Collection& collection);
    Config report(const Config& metrics, metric::Collection& collection, const State& state,
                  const ReportOptions& options = {});
    /// Returns the values of a collection over all ranks without a report, for example for Plateau;
    /// then resets its metrics. *Collective.* Throws like a report of the collection.
    [[nodiscard]] Config reduce(metric::Collection& collection);
    /// Records rank 0's metrics and saves the files in a directory as a checkpoint, together with
    /// those of other ranks. *Collective.* Throws CheckpointError [RT-K5].
    void report(const Config& metrics, const Checkpoint& directory,
                const ReportOptions& options = {});
    /// Records rank 0's metrics and saves its `files`, contents by name, as a checkpoint. With
    /// CheckpointUploadMode::async in the background. All ranks pass the same options.
    /// *Collective.* Throws CheckpointError [RT-K14] for a name that is not valid.
    void report_files(const Config& metrics, std::map<std::string, std::string> files,
                      const ReportOptions& options = {});

    /// The same with metrics in braces, which may also be tensors of one element:
    /// `worker.report({{"loss", loss}}, state)`. Throws ConfigError [RT-C34] for a larger tensor.
    template <class... Rest>
    auto report(std::initializer_list<detail::ReportedMetric> metrics, Rest&&... rest) requires
        requires(WorkerReports& worker, const Config& config) {
        worker.report(config, std::forward<Rest>(rest)...);
    }
    { return report(detail::ReportedMetric::config_of(metrics), std::forward<Rest>(rest)...); }

    /// Logs metrics of one step, such as `worker.log({{"loss", loss}})`: numbers, and tensors of
    /// one element, which are read later in batches unless they are in CPU memory. Rank 0's go to
    /// steps.jsonl and to trackers, other ranks' are ignored. Not collective, never blocks; metrics
    /// logged faster than they can be written are dropped, with a warning at the end. Throws
    /// ConfigError [RT-C33] for a reserved name, [RT-C34] for a larger tensor.
    void log(std::initializer_list<StepMetric> metrics) {
        log(std::span<const StepMetric>(metrics.begin(), metrics.size()));
    }
    void log(std::span<const StepMetric> metrics); ///< the same, for any number of them

    /// Returns the kept checkpoints of this run, oldest first, with their metrics and validation
    /// status. Waits for a checkpoint that is being saved, and in mode `validated` for all
    /// validations, at most `timeout_s` seconds if set. *Collective*; rank 0's arguments are used.
    [[nodiscard]] std::vector<ReportedCheckpoint>
    get_all_reported_checkpoints(ConsistencyMode mode = ConsistencyMode::validated,
                                 std::optional<double> timeout_s = std::nullopt);

    /// The newest checkpoint, to resume from; empty in a new run.
    [[nodiscard]] std::optional<Checkpoint> checkpoint() const;

    /// Loads the newest checkpoint, if any, into the state, the random number generators, the data
    /// sets and the hooks of prepared models; returns true if there was one. epochs() calls it.
    /// *Collective.*
    bool restore(const State& state);

    /// The same for the given checkpoint, for example of another run; it is checked first. Throws
    /// CheckpointError [RT-K1, RT-K2, RT-K3].
    void restore(const State& state, const Checkpoint& from);

    /// Saves a checkpoint of the state without a report, outside of loops over batches. If the run
    /// is preempted, the training function ends here. *Collective.*
    void save(const State& state);

    /// Early stopping: makes the current epoch the last of the loop over epochs(), on all ranks
    /// once one has called this. The body runs to its end, or leaves the loop by `break`.
    ///
    /// The next checkpoint records this, so that neither a restart nor another start of this run
    /// begins a further epoch. It is the next report's, or a separate one when the loop ends
    /// without. Other ranks learn about the stop there, so this is not collective.
    void stop() noexcept { progress_.stop(); }

    /// Reports that this rank is working in a loop or a wait unknown to rtrain, such as an
    /// evaluation, a simulator or a child process. Restarts HangConfig::busy_s. Callable from any
    /// thread. Not collective.
    void heartbeat() noexcept;

    /// Returns the remaining time if the run is preempted; otherwise empty. *Collective.*
    ///
    /// Most training functions need not call this: the next report() of a state saves it, whatever
    /// CheckpointConfig says. The loop over epochs() also saves between two batches. fit() then
    /// ends, and the same command resumes there. Call it to save with a custom report in other
    /// loops, or to skip long work.
    [[nodiscard]] std::optional<PreemptionInfo> preemption();

protected:
    WorkerReports(std::shared_ptr<detail::AnyBackend> backend, const TrainerOptions& options,
                  Run& run);
    ~WorkerReports() = default;

    [[nodiscard]] Progress& progress() noexcept { return progress_; }
    [[nodiscard]] bool saves_state() const;
    void require_can_be_saved(const State& state);
    void save_between(const State& state);
    void leave_if_preempted() const;
    void load(const State& state, const Checkpoint& from);
    /// Adds the model to checkpoints while it is alive.
    void keep(std::shared_ptr<detail::PreparedModel> model, const torch::nn::Module& module);
    /// The kept models that are sharded between ranks.
    [[nodiscard]] std::vector<std::shared_ptr<detail::SharedWeights>> sharded_models() const;
    /// Throws CheckpointError [RT-K11] for a policy that cannot save sharded state.
    void require_parts_are_saved() const;

    Run& run_;
    Progress progress_;
    std::optional<State> state_; ///< of the loop over epochs()
    bool has_reported_ = false;  ///< in this step of steps()

private:
    struct Prepared {
        int number = 0; ///< number of earlier prepare() calls
        std::shared_ptr<detail::PreparedModel> model;

        /// Section of its hook in a checkpoint.
        [[nodiscard]] std::string section() const;
    };

    [[nodiscard]] UserCall::In in_report();
    void note_datasets();
    void reporting(const std::function<void()>& action);
    void report_checkpoint(const Config& metrics, const std::function<void()>& report);
    void show(const torch::nn::Module& module);
    void check_models(checkpoint::Compared* later = nullptr);
    [[nodiscard]] checkpoint::Snapshot empty_snapshot() const;
    [[nodiscard]] checkpoint::Snapshot snapshot_of(const State& state);
    [[nodiscard]] bool is_behind_the_end() const;
    [[nodiscard]] bool count_report();

    std::string said_way_; ///< the last message about resumed loops
    int state_reports_ = 0;
    std::uint64_t reports_ = 0;
    std::vector<Prepared> prepared_;
    int prepared_count_ = 0;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/train/worker_reports_definitions.hpp>
#endif
