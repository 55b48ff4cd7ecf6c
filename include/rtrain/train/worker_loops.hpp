// SPDX-License-Identifier: Apache-2.0
/// @file
/// WorkerLoops: a worker's loops over epochs and steps, and how they end.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/state/state.hpp>
#include <rtrain/train/epochs.hpp>
#include <rtrain/train/worker_reports.hpp>

#include <memory>

namespace rtrain {

/// Loops of a worker.
class WorkerLoops : public WorkerReports {
public:
    /// Loads the newest checkpoint into `state`, and returns the epochs from the first that it has
    /// not finished to `count` - 1. *Collective.* Throws CheckpointError [RT-K5, RT-K6, RT-K7,
    /// RT-K11, RT-K20, RT-K30] for a state that a report could not save.
    ///
    /// An epoch is finished at a report() outside of all loops over a data shard's batches. A
    /// checkpoint from within such a loop resumes after the batch it was taken in. See
    /// docs/data-order.md for nested and consecutive loops.
    [[nodiscard]] Epochs epochs(int count, const State& state);

    /// Returns the steps from the first that the newest checkpoint has not finished to `count` - 1,
    /// for training without epochs; otherwise like epochs(). A step is finished at a report() in
    /// its body. stop() takes effect in the next step that reports. *Collective.* Throws
    /// CheckpointError [RT-K34] in a run that counts epochs.
    ///
    /// @code
    /// auto steps = worker.steps(10'000, state);
    /// auto batch = batches.begin(); // after steps(), which loads its position
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

    /// True if RunConfig::stop has ended the training: at an earlier report, or because the time
    /// limit expired. The same on all ranks at the same point. Loops over epochs() end
    /// automatically; in others, check once a report or a batch.
    [[nodiscard]] bool should_stop() const;

protected:
    WorkerLoops(std::shared_ptr<detail::AnyBackend> backend, const TrainerOptions& options,
                Run& run);
    ~WorkerLoops();

private:
    [[nodiscard]] Epochs loop(int count, const State& state, bool in_steps);
    [[nodiscard]] bool end_step();
    void make_room_in(const data::LoopStack::Loop& loop);
    void make_room();
    [[nodiscard]] bool ends(const data::LoopStack::Loop& loop) const;
    [[nodiscard]] bool stop_if_asked(bool asks_ranks = true);
    void leave_epochs_early(int count, bool in_steps);

    data::Pass::Callbacks outer_loops_; ///< of a training around this one
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/train/worker_loops_definitions.hpp>
#endif
