// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a worker tells its run, and gets back from it: metrics, checkpoints, epochs.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/checkpoint/any_policy.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/snapshot.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/model/prepared_model.hpp>
#include <rtrain/process/rank_status.hpp>
#include <rtrain/process/user_call.hpp>
#include <rtrain/run/report_options.hpp>
#include <rtrain/run/reported_checkpoint.hpp>
#include <rtrain/state/progress.hpp>
#include <rtrain/state/state.hpp>
#include <rtrain/track/step_value.hpp>
#include <rtrain/train/epochs.hpp>
#include <rtrain/train/preemption.hpp>
#include <rtrain/train/reported_metric.hpp>
#include <rtrain/train/worker_collectives.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

namespace metric {
class Collection;
} // namespace metric

class Run;

/// A worker's reports and checkpoints.
class WorkerReports : public WorkerCollectives {
public:
    /// The run's directory, `<storage_path>/<name>`.
    [[nodiscard]] std::filesystem::path run_path() const;

    /// Records rank 0's metrics. *Collective.* Throws what went wrong in saving an earlier
    /// checkpoint in the background. When RunConfig::stop has stopped the run, the rest of the
    /// epoch under way reports nothing.
    void report(const Config& metrics);
    /// Records rank 0's metrics and saves a checkpoint of the state, with every rank's random
    /// number generator and the place in every data set; with CheckpointConfig::frequency or
    /// mean_time_between_failures_s, not each time. *Collective.* Before, ranks compare the
    /// parameters of prepared models: ModelError [RT-M25] when they have drifted apart.
    void report(const Config& metrics, const State& state, const ReportOptions& options = {});
    /// Also records what a collection (rtrain/metrics.hpp) has seen on all ranks, under its names,
    /// which go before equal ones in `metrics`. Then its metrics begin anew; a state that holds
    /// them is saved behind that. Returns the collection's values, the same on all ranks.
    /// *Collective.* Throws Error [RT-V46], and what the metrics' compute() throws.
    Config report(const Config& metrics, metric::Collection& collection);
    Config report(const Config& metrics, metric::Collection& collection, const State& state,
                  const ReportOptions& options = {});
    /// Records rank 0's metrics and keeps the files in a directory as a checkpoint, together with
    /// those that other ranks give. *Collective.* Throws CheckpointError [RT-K5].
    void report(const Config& metrics, const Checkpoint& directory,
                const ReportOptions& options = {});

    /// The same, of metrics in braces, which may also be tensors of one element:
    /// `worker.report({{"loss", loss}}, state)`. Throws ConfigError [RT-C34] for a larger tensor.
    template <class... Rest>
    auto report(std::initializer_list<detail::ReportedMetric> metrics, Rest&&... rest) requires
        requires(WorkerReports& worker, const Config& config) {
        worker.report(config, std::forward<Rest>(rest)...);
    }
    { return report(detail::ReportedMetric::config_of(metrics), std::forward<Rest>(rest)...); }

    /// Notes metrics of one step, such as `worker.log({{"loss", loss}})`: numbers, and tensors of
    /// one element, which are read later and together unless they lie in the CPU's memory. Rank
    /// 0's go to steps.jsonl and to trackers, other ranks' nowhere. Not collective, and waits for
    /// nothing; what comes faster than it can be written is left out, and said at the end. Throws
    /// ConfigError [RT-C33] for a name that rtrain fills in, [RT-C34] for a larger tensor.
    void log(std::initializer_list<StepMetric> metrics);

    /// The checkpoints of this run that are kept, oldest first, with their metrics and what is
    /// known about their validation. Waits for a checkpoint that is being saved, and in mode
    /// `validated` for all validations, but for no more than `timeout_s` seconds if set.
    /// *Collective*; rank 0's arguments count.
    [[nodiscard]] std::vector<ReportedCheckpoint>
    get_all_reported_checkpoints(ConsistencyMode mode = ConsistencyMode::validated,
                                 std::optional<double> timeout_s = std::nullopt);

    /// The newest checkpoint, to go on from; empty in a new run.
    [[nodiscard]] std::optional<Checkpoint> checkpoint() const;

    /// Loads the newest checkpoint, if there is one, into the state, the random number generators,
    /// the data sets and the hooks of models that are prepared; returns whether there was one.
    /// epochs() calls it. *Collective.*
    bool restore(const State& state);

    /// The epochs from the first that the newest checkpoint has not finished to `count` - 1, after
    /// loading that checkpoint into `state`. *Collective.* Throws CheckpointError [RT-K5, RT-K6,
    /// RT-K7, RT-K11, RT-K20, RT-K30] for a state that a report could not save.
    ///
    /// An epoch is finished at a report() that no loop over a data shard's batches is around; a
    /// checkpoint from within such a loop continues the loop behind the batch it was taken in. See
    /// docs/data-order.md for loops in loops, and one behind the other.
    [[nodiscard]] Epochs epochs(int count, const State& state);

    /// The steps from the first that the newest checkpoint has not finished to `count` - 1, for
    /// training that counts no epochs; else as epochs(). A step is finished at a report() in its
    /// body. stop() takes effect in the next step that reports. *Collective.* Throws
    /// CheckpointError [RT-K34] in a run that counts epochs.
    ///
    /// @code
    /// auto steps = worker.steps(10'000, state);
    /// auto batch = batches.begin(); // behind steps(), which loads its place
    /// for (const int step : steps) {
    ///     if (batch == batches.end()) {
    ///         batch = batches.begin();
    ///     }
    ///     train(*batch);
    ///     ++batch;
    ///     if (step % 100 == 99) {
    ///         worker.report({{"step", step}}, state);
    ///     }
    /// }
    /// @endcode
    [[nodiscard]] Epochs steps(int count, const State& state);

    /// Early stopping: the epoch under way is the last of the loop over epochs(), on all ranks as
    /// soon as one has called this. The body goes on to its end, or leaves the loop by `break`.
    ///
    /// A checkpoint says so: neither a restart nor another start of this run begins an epoch more.
    /// It is that of the next report, or one of its own when the loop ends without. Other ranks
    /// learn of it there, so this is not collective.
    void stop() noexcept { progress_.stop(); }

    /// Says that this rank is at work, in a loop or a wait that rtrain knows nothing of: an
    /// evaluation, a simulator, a child process. HangConfig::busy_s then begins again. Any thread
    /// may call it. Not collective.
    void heartbeat() noexcept { RankStatus::current().advance(); }

    /// Whether RunConfig::stop has ended the training: at a report before, or because the time is
    /// up. The same on all ranks at the same place. Loops over epochs() end by themselves; ask in
    /// others, once a report or a batch.
    [[nodiscard]] bool should_stop() const;

    /// Whether the run is to make room, and how long it may still take; empty when not.
    /// *Collective.*
    ///
    /// Most training functions need not ask: the next report() of a state saves it, whatever
    /// CheckpointConfig says, and within the loop over epochs() a state is also saved between two
    /// batches. fit() then ends, and the same command goes on from there. Ask to save with a report
    /// of one's own in other loops, or to skip what takes long.
    [[nodiscard]] std::optional<PreemptionInfo> preemption();

protected:
    WorkerReports(std::shared_ptr<detail::AnyBackend> backend, const TrainerOptions& options,
                  Run& run);
    ~WorkerReports();

    [[nodiscard]] Progress& progress() noexcept { return progress_; }
    /// Checkpoints look after it for as long as the model lives.
    void keep(std::shared_ptr<detail::PreparedModel> model, const torch::nn::Module& module);
    /// Of the models it looks after, those that ranks share.
    [[nodiscard]] std::vector<std::shared_ptr<detail::SharedWeights>> sharded_models() const;
    /// Throws CheckpointError [RT-K11] for a policy that cannot save what ranks have parts of.
    void require_parts_are_saved() const;

private:
    struct Prepared {
        int number = 0; ///< prepare() calls before
        std::shared_ptr<detail::PreparedModel> model;

        /// Where in a checkpoint its hook is.
        [[nodiscard]] std::string section() const;
    };

    [[nodiscard]] UserCall::In in_report();
    [[nodiscard]] bool saves_state() const;
    void note_datasets();
    void reporting(const std::function<void()>& action);
    void show(const torch::nn::Module& module);
    void check_models(checkpoint::Compared* later = nullptr);
    void save_between(const State& state);
    [[nodiscard]] checkpoint::Snapshot empty_snapshot() const;
    void require_can_be_saved(const State& state);
    [[nodiscard]] checkpoint::Snapshot snapshot_of(const State& state);
    void make_room_in(const data::Loops::Loop& loop);
    void leave_if_preempted() const;
    [[nodiscard]] Epochs loop(int count, const State& state, bool in_steps);
    [[nodiscard]] bool ends_step();
    void make_room();
    [[nodiscard]] bool stops_here(bool asks_ranks = true);
    [[nodiscard]] bool is_behind_the_end() const;
    [[nodiscard]] bool ends(const data::Loops::Loop& loop) const;
    void leave_epochs_early(int count, bool in_steps);
    [[nodiscard]] bool is_due();

    Run& run_;
    Progress progress_;
    std::optional<State> state_; ///< of the loop over epochs()
    std::string said_way_;       ///< back into loops
    int state_reports_ = 0;
    std::uint64_t reports_ = 0;
    bool has_reported_ = false; ///< in this step of steps()
    std::vector<Prepared> prepared_;
    int prepared_count_ = 0;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/train/worker_loops_definitions.hpp>
#include <rtrain/train/worker_reports_definitions.hpp>
#endif
