// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door worker_reports.hpp.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/process/preemption_notice.hpp>
#include <rtrain/process/rank_status.hpp>
#include <rtrain/run/run.hpp>
#include <rtrain/train/worker_reports.hpp>

#include <ATen/Functions.h>

#include <limits>
#include <utility>

namespace rtrain {

RTRAIN_DOOR WorkerReports::WorkerReports(std::shared_ptr<detail::AnyBackend> backend,
                                         const TrainerOptions& options, Run& run)
    : WorkerCollectives(std::move(backend), options), run_(run) {
    data::Pass::observe([this](const data::Loops::Loop& loop) {
        RankStatus::current().advance();
        make_room_in(loop);
    });
    PreemptionNotice::current().listen(true);
}

RTRAIN_DOOR WorkerReports::~WorkerReports() {
    PreemptionNotice::current().listen(false);
    data::Pass::observe({});
}

RTRAIN_DOOR std::filesystem::path WorkerReports::run_path() const {
    return run_.directory().location().path;
}

RTRAIN_DOOR void WorkerReports::report(const Config& metrics) {
    run_.report(metrics);
}

RTRAIN_DOOR void WorkerReports::report(const Config& metrics, const State& state,
                                       const ReportOptions& options) {
    if (!run_.saves_state()) {
        if (asks_for_validation(options)) {
            throw ConfigError("RT-C16", "a report asks for validation, but checkpoint::None saves "
                                        "nothing to validate");
        }
        run_.report(metrics);
        return;
    }
    run_.report(
        metrics, options, is_due(), [&] { check_models(); }, [&] { return snapshot_of(state); });
    leave_if_preempted();
}

RTRAIN_DOOR void WorkerReports::report(const Config& metrics, const Checkpoint& directory,
                                       const ReportOptions& options) {
    run_.report(metrics, directory, options);
    leave_if_preempted();
}

RTRAIN_DOOR std::vector<ReportedCheckpoint>
WorkerReports::get_all_reported_checkpoints(ConsistencyMode mode, std::optional<double> timeout_s) {
    return run_.reported_checkpoints(mode, timeout_s);
}

RTRAIN_DOOR std::optional<Checkpoint> WorkerReports::checkpoint() const {
    return run_.checkpoint();
}

RTRAIN_DOOR bool WorkerReports::restore(const State& state) {
    const auto newest = checkpoint();
    if (!run_.saves_state() || !newest) {
        return false;
    }
    const checkpoint::Snapshot snapshot = run_.load(*newest);
    detail::succeed_together(*ranks(), [&] {
        state.load(snapshot);
        progress_.load(snapshot, rank(), run_.is_own(*newest));
        for (const Prepared& prepared : prepared_) {
            prepared.model->load_hook(StateReader(snapshot, prepared.section()));
        }
    });
    if (const std::string way = progress_.way_back(); rank() == 0 && way != said_way_) {
        said_way_ = way;
        console::say("going on within epoch %d: %s", progress_.epoch() + 1, way.c_str());
    }
    return true;
}

RTRAIN_DOOR Epochs WorkerReports::epochs(int count, const State& state) {
    restore(state);
    progress_.set_epochs(count);
    return Epochs(progress_, count,
                  {.begin = [this, state] { state_.emplace(state); },
                   .end_epoch = [this] { return stops_here(); },
                   .left_early = [this, count] { leave_epochs_early(count); },
                   .end = [this] { state_.reset(); }});
}

RTRAIN_DOOR std::optional<PreemptionInfo> WorkerReports::preemption() {
    constexpr double never = std::numeric_limits<double>::infinity();
    PreemptionNotice& notice = PreemptionNotice::current();
    at::Tensor seconds = at::full({1}, notice.given() ? notice.seconds_left() : never, at::kDouble);
    ranks()->all_reduce(seconds, ReduceOp::min);
    const double left = seconds.item<double>();
    if (left == never) {
        return std::nullopt;
    }
    notice.agree(nullptr);
    return PreemptionInfo{left};
}

RTRAIN_DOOR void WorkerReports::keep(std::shared_ptr<detail::PreparedModel> model) {
    std::erase_if(prepared_, [](const Prepared& item) { return item.model->is_gone(); });
    prepared_.push_back({prepared_count_++, std::move(model)});
}

RTRAIN_DOOR std::string WorkerReports::Prepared::section() const {
    return "rtrain/hook/" + std::to_string(number);
}

/// No state of ranks that have drifted apart is saved as if it were the model. *Collective.*
RTRAIN_DOOR void WorkerReports::check_models() {
    for (const auto& [number, model] : prepared_) {
        if (!model->is_gone()) {
            model->check_parameters();
        }
    }
}

/// Outside of a report.
RTRAIN_DOOR void WorkerReports::save_between(const State& state) {
    run_.save([&] {
        check_models();
        return snapshot_of(state);
    });
}

RTRAIN_DOOR checkpoint::Snapshot WorkerReports::snapshot_of(const State& state) {
    checkpoint::Snapshot snapshot;
    state.save(snapshot);
    progress_.save(snapshot, *ranks());
    for (const Prepared& prepared : prepared_) {
        prepared.model->save_hook(StateWriter(snapshot, prepared.section()), run_.takes_rows());
    }
    return snapshot;
}

/// Between two batches of a loop over epochs(): saves and ends if all ranks have agreed in this
/// very loop that the run is to make room.
RTRAIN_DOOR void WorkerReports::make_room_in(const data::Loops::Loop& loop) {
    const PreemptionNotice& notice = PreemptionNotice::current();
    const bool agreed = size() > 1 ? notice.agreed_in(*loop.position) : notice.given();
    if (!agreed || !state_ || !loop.trains || loop.position->within_step ||
        data::Loops::current().only() != &loop || !progress_.obstacle().empty() ||
        !run_.saves_state()) {
        return;
    }
    save_between(*state_);
    leave_if_preempted();
}

/// Behind a checkpoint.
RTRAIN_DOOR void WorkerReports::leave_if_preempted() const {
    if (run_.preempted()) {
        throw detail::Preempted();
    }
}

/// Behind the body of an epoch: whether it was the last because some rank has called stop().
RTRAIN_DOOR bool WorkerReports::stops_here() {
    if (!progress_.agree_to_stop(*ranks())) {
        return false;
    }
    if (run_.saves_state() && !progress_.stop_is_saved()) {
        save_between(*state_);
    }
    return true;
}

/// When the loop over `count` epochs was left by `break` or `return`.
RTRAIN_DOOR void WorkerReports::leave_epochs_early(int count) {
    if (progress_.is_to_stop()) {
        (void)stops_here();
    } else if (rank() == 0 && progress_.epoch() + 1 < count) {
        console::say("the loop over %d epochs was left in epoch %d; another start of this "
                     "run goes on with the rest, unless worker.stop() says that there is none",
                     count, progress_.epoch());
    }
}

/// Whether this report of a state saves it; else the run's clock decides, if it has one.
RTRAIN_DOOR bool WorkerReports::is_due() {
    const CheckpointConfig& config = options().run.checkpoint;
    const bool last = config.at_end && progress_.in_last_epoch();
    if (last || config.mean_time_between_failures_s) {
        return last;
    }
    return config.frequency <= 1 || ++state_reports_ % config.frequency == 0;
}

} // namespace rtrain
