// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door worker_loops.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/preemption/preemption_notice.hpp>
#include <rtrain/process/preemption/time_limit.hpp>
#include <rtrain/process/status/user_call.hpp>
#include <rtrain/run/run.hpp>
#include <rtrain/train/epochs.hpp>
#include <rtrain/train/worker_loops.hpp>

#include <algorithm>
#include <utility>

namespace rtrain {

RTRAIN_DOOR WorkerLoops::WorkerLoops(std::shared_ptr<detail::AnyBackend> backend,
                                     const TrainerOptions& options, Run& run)
    : WorkerReports(std::move(backend), options, run) {
    outer_loops_ =
        data::Pass::observe({[this](const data::LoopStack::Loop& loop) {
                                 run_.context().status.advance();
                                 detail::require_attempt(run_.context().attempt);
                                 make_room_in(loop);
                             },
                             [this](const data::LoopStack::Loop& loop) { return ends(loop); }});
    run_.context().notice.listen(true);
}

RTRAIN_DOOR WorkerLoops::~WorkerLoops() {
    run_.context().notice.listen(false);
    (void)data::Pass::observe(std::move(outer_loops_));
}

RTRAIN_DOOR Epochs WorkerLoops::epochs(int count, const State& state) {
    return loop(options().run.fast_dev_run > 0 ? std::min(count, 1) : count, state, false);
}

RTRAIN_DOOR Epochs WorkerLoops::steps(int count, const State& state) {
    const int limit = options().run.fast_dev_run;
    return loop(limit > 0 ? std::min(count, limit) : count, state, true);
}

RTRAIN_DOOR Epochs WorkerLoops::loop(int count, const State& state, bool in_steps) {
    const UserCall::In in(UserCall::epochs);
    if (saves_state()) {
        require_can_be_saved(state);
    }
    restore(state);
    progress_.set_epochs(count, in_steps);
    return Epochs(
        progress_, run_.has_stopped() ? 0 : count,
        {.begin = [this, state] { state_.emplace(state); },
         .end_epoch = [this, in_steps] { return in_steps ? end_step() : stop_if_asked(); },
         .left_early = [this, count, in_steps] { leave_epochs_early(count, in_steps); },
         .end = [this] { state_.reset(); },
         .in_steps = in_steps});
}

/// After the body of a step. Ranks only communicate if the step reported.
RTRAIN_DOOR bool WorkerLoops::end_step() {
    const PreemptionNotice& notice = run_.context().notice;
    if ((size() > 1 ? notice.agreed() : notice.given()) && saves_state()) {
        data::LoopStack::current().end_epoch();
        make_room();
    }
    return stop_if_asked(std::exchange(has_reported_, false));
}

/// Between two batches of a loop over epochs(): saves and ends if all ranks have agreed in this
/// very loop that the run is preempted. A step of steps() runs to its end.
RTRAIN_DOOR void WorkerLoops::make_room_in(const data::LoopStack::Loop& loop) {
    const PreemptionNotice& notice = run_.context().notice;
    const bool agreed = size() > 1 ? notice.agreed_in(*loop.position) : notice.given();
    const data::LoopStack& loops = data::LoopStack::current();
    if (agreed && state_ && !progress_.in_steps() && loop.trains && !loop.position->within_step &&
        loops.only() == &loop && loops.within_epoch() && progress_.obstacle().empty() &&
        saves_state()) {
        make_room();
    }
}

RTRAIN_DOOR void WorkerLoops::make_room() {
    save_between(*state_);
    leave_if_preempted();
}

/// Before a batch of a loop over epochs(): returns true to end before it. All ranks are in the
/// loop.
RTRAIN_DOOR bool WorkerLoops::ends(const data::LoopStack::Loop& loop) const {
    const int limit = options().run.fast_dev_run;
    if (limit > 0 && loop.used >= limit) {
        return true;
    }
    if (!state_ || !loop.trains || progress_.in_steps()) { // a step completes its batches
        return false;
    }
    const TimeLimit& time = run_.context().time_limit;
    const bool time_is_up = size() > 1 ? time.agreed_in(*loop.position) : time.is_over();
    return run_.has_stopped() || (time_is_up && !loop.position->within_step);
}

/// Called after the body of an epoch: saves, and returns true, if it was the last because of
/// RunConfig::stop, or because a rank called stop().
RTRAIN_DOOR bool WorkerLoops::stop_if_asked(bool asks_ranks) {
    const UserCall::In in(UserCall::epochs);
    if (should_stop() && !run_.has_stopped()) {
        run_.judge_time();
    }
    if (!run_.has_stopped() && !(asks_ranks && progress_.agree_to_stop(*ranks()))) {
        return false;
    }
    const bool is_saved = run_.has_stopped() ? run_.stop_is_saved() : progress_.stop_is_saved();
    if (saves_state() && !is_saved) {
        data::LoopStack::current().end_epoch();
        save_between(*state_);
    }
    return true;
}

/// Called if the loop over `count` epochs was left by `break` or `return`.
RTRAIN_DOOR void WorkerLoops::leave_epochs_early(int count, bool in_steps) {
    if (should_stop() || progress_.is_to_stop()) {
        (void)stop_if_asked();
    } else if (rank() == 0 && progress_.epoch() + 1 < count) {
        const char* const unit = in_steps ? "step" : "epoch";
        console::warn("the loop over %d %ss was left in %s %d; restarting this run continues with "
                      "the rest; call worker.stop() to end training there",
                      count, unit, unit, progress_.epoch());
    }
}

RTRAIN_DOOR bool WorkerLoops::should_stop() const {
    detail::require_attempt(run_.context().attempt);
    const TimeLimit& time = run_.context().time_limit;
    return run_.has_stopped() || (size() > 1 ? time.agreed() : time.is_over());
}

} // namespace rtrain
