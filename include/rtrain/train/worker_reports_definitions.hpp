// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door worker_reports.hpp.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/packed.hpp>
#include <rtrain/checkpoint/policy/state_files.hpp>
#include <rtrain/config/merged.hpp>
#include <rtrain/metric/collection.hpp>
#include <rtrain/model/profile/flop_count.hpp>
#include <rtrain/model/profile/model_parts.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/memory/deferred_copy.hpp>
#include <rtrain/process/preemption/preemption_notice.hpp>
#include <rtrain/run/run.hpp>
#include <rtrain/state/alike.hpp>
#include <rtrain/state/bytes_of_ranks.hpp>
#include <rtrain/train/worker_reports.hpp>

#include <ATen/Functions.h>

#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace rtrain {

RTRAIN_DOOR WorkerReports::WorkerReports(std::shared_ptr<detail::AnyBackend> backend,
                                         const TrainerOptions& options, Run& run)
    : WorkerCollectives(std::move(backend), options), run_(run) {}

RTRAIN_DOOR std::filesystem::path WorkerReports::run_path() const {
    return run_.directory().location().path;
}

RTRAIN_DOOR UserCall::In WorkerReports::in_report() {
    reports_ += UserCall::current().name == UserCall::none ? 1U : 0U;
    return UserCall::In(UserCall::report, reports_);
}

/// fast_dev_run saves no checkpoint.
RTRAIN_DOOR bool WorkerReports::saves_state() const {
    return run_.saves_state() && options().run.fast_dev_run == 0;
}

/// Records the data sets for the next start of the run, which must have the same ones.
RTRAIN_DOOR void WorkerReports::note_datasets() {
    if (rank() == 0) {
        progress_.each_data_set([this](const std::string& name, const data::Position& place) {
            run_.journal().uses(name, place.rows, place.content);
        });
    }
}

/// Calls `action`, which reports or saves. If it fails, the attempt ends, whatever the function
/// catches.
RTRAIN_DOOR void WorkerReports::reporting(const std::function<void()>& action) {
    detail::require_attempt(run_.context().attempt);
    has_reported_ = true;
    note_datasets();
    try {
        action();
    } catch (const std::exception& error) {
        run_.context().attempt.fail(detail::failure_of(error));
        throw;
    } catch (...) {
        run_.context().attempt.fail({.code = Failure::foreign, .message = detail::thrown_object()});
        throw;
    }
}

RTRAIN_DOOR void WorkerReports::report(const Config& metrics) {
    const auto in = in_report();
    if (!is_behind_the_end()) {
        reporting([&] { run_.report(metrics); });
    }
}

RTRAIN_DOOR void WorkerReports::report(const Config& metrics, const State& state,
                                       const ReportOptions& options) {
    const auto in = in_report();
    if (!saves_state()) {
        reporting([&] {
            if (asks_for_validation(options) && !run_.saves_state()) {
                throw ConfigError("RT-C16", "a report requests validation, but checkpoint::None "
                                            "saves nothing to validate");
            }
        });
        report(metrics);
        return;
    }
    if (is_behind_the_end()) {
        return;
    }
    checkpoint::Compared compared;
    const bool is_late = this->options().run.checkpoint.late_copies.value_or(false);
    const auto check = [&](bool in_background) {
        check_models(is_late && in_background ? &compared : nullptr);
    };
    const auto take_snapshot = [&] {
        checkpoint::Snapshot snapshot = snapshot_of(state);
        snapshot.compared = std::move(compared);
        return snapshot;
    };
    reporting([&] { run_.report(metrics, options, count_report(), check, take_snapshot); });
    leave_if_preempted();
}

RTRAIN_DOOR Config WorkerReports::report(const Config& metrics, metric::Collection& collection) {
    const auto in = in_report();
    Config values;
    reporting([&] { values = collection.reduce(*ranks()); });
    report(detail::merged(metrics, values));
    return values;
}

RTRAIN_DOOR Config WorkerReports::report(const Config& metrics, metric::Collection& collection,
                                         const State& state, const ReportOptions& options) {
    const auto in = in_report();
    Config values;
    reporting([&] { values = collection.reduce(*ranks()); });
    report(detail::merged(metrics, values), state, options);
    return values;
}

RTRAIN_DOOR void WorkerReports::report(const Config& metrics, const Checkpoint& directory,
                                       const ReportOptions& options) {
    report_checkpoint(metrics, [&] { run_.report(metrics, &directory, options); });
}

RTRAIN_DOOR void WorkerReports::report_files(const Config& metrics,
                                             std::map<std::string, std::string> files,
                                             const ReportOptions& options) {
    report_checkpoint(metrics, [&] { run_.report(metrics, nullptr, options, std::move(files)); });
}

/// A run that tries the program in short keeps only the metrics.
RTRAIN_DOOR void WorkerReports::report_checkpoint(const Config& metrics,
                                                  const std::function<void()>& report) {
    const auto in = in_report();
    if (is_behind_the_end()) {
        return;
    }
    if (options().run.fast_dev_run > 0) {
        this->report(metrics);
        return;
    }
    reporting(report);
    leave_if_preempted();
}

RTRAIN_DOOR Config WorkerReports::reduce(metric::Collection& collection) {
    const UserCall::In in(UserCall::all_reduce);
    detail::require_attempt(run_.context().attempt);
    return collection.reduce(*ranks());
}

RTRAIN_DOOR void WorkerReports::log(std::span<const StepMetric> metrics) {
    detail::require_attempt(run_.context().attempt);
    if (rank() == 0) {
        run_.journal().log(metrics);
    }
}

RTRAIN_DOOR std::vector<ReportedCheckpoint>
WorkerReports::get_all_reported_checkpoints(ConsistencyMode mode, std::optional<double> timeout_s) {
    const UserCall::In in(UserCall::reported_checkpoints);
    detail::require_attempt(run_.context().attempt);
    return run_.reported_checkpoints(mode, timeout_s);
}

RTRAIN_DOOR std::optional<Checkpoint> WorkerReports::checkpoint() const {
    detail::require_attempt(run_.context().attempt);
    return run_.checkpoint();
}

RTRAIN_DOOR bool WorkerReports::restore(const State& state) {
    const UserCall::In in(UserCall::restore);
    const auto newest = checkpoint();
    if (!run_.saves_state() || !newest) {
        return false;
    }
    load(state, *newest);
    return true;
}

RTRAIN_DOOR void WorkerReports::restore(const State& state, const Checkpoint& from) {
    const UserCall::In in(UserCall::restore);
    detail::require_attempt(run_.context().attempt);
    detail::succeed_together(
        *ranks(), [&] { (void)checkpoint::verify(from.as_directory(), rank(), size()); });
    load(state, from);
}

RTRAIN_DOOR void WorkerReports::load(const State& state, const Checkpoint& from) {
    checkpoint::Snapshot snapshot = run_.load(from);
    snapshot.rank = rank();
    snapshot.ranks = size();
    snapshot.same_run = run_.is_own(from);
    process::DeferredCopy::finish_all();
    ranks()->barrier(); // ranks copy files written by other ranks of their node
    detail::succeed_together(*ranks(), [&] {
        state.load(snapshot);
        detail::load_fitting("rtrain",
                             [&] { progress_.load(snapshot, rank(), snapshot.same_run); });
        for (const Prepared& prepared : prepared_) {
            prepared.model->load_hook(StateReader(snapshot, prepared.section()));
        }
    });
    if (const std::string way = progress_.resume_path(); rank() == 0 && way != said_way_) {
        said_way_ = way;
        console::say("resuming within epoch %d: %s", progress_.epoch() + 1, way.c_str());
    }
}

RTRAIN_DOOR void WorkerReports::save(const State& state) {
    if (saves_state()) {
        save_between(state);
    } else {
        (void)preemption();
    }
    leave_if_preempted();
}

RTRAIN_DOOR void WorkerReports::heartbeat() noexcept {
    run_.context().status.advance();
}

RTRAIN_DOOR std::optional<PreemptionInfo> WorkerReports::preemption() {
    const UserCall::In in(UserCall::preemption);
    constexpr double never = std::numeric_limits<double>::infinity();
    PreemptionNotice& notice = run_.context().notice;
    at::Tensor seconds = at::full({1}, notice.given() ? notice.seconds_left() : never, at::kDouble);
    ranks()->all_reduce(seconds, ReduceOp::min);
    const auto left = seconds.item<double>();
    if (left == never) {
        return std::nullopt;
    }
    notice.agree(nullptr);
    return PreemptionInfo{left};
}

RTRAIN_DOOR void WorkerReports::keep(std::shared_ptr<detail::PreparedModel> model,
                                     const torch::nn::Module& module) {
    std::erase_if(prepared_, [](const Prepared& item) { return item.model->is_gone(); });
    if (rank() == 0 && options().run.console.verbose > 0) {
        show(module);
    }
    prepared_.push_back({prepared_count_++, std::move(model)});
}

RTRAIN_DOOR std::vector<std::shared_ptr<detail::SharedWeights>>
WorkerReports::sharded_models() const {
    std::vector<std::shared_ptr<detail::SharedWeights>> found;
    for (const Prepared& item : prepared_) {
        if (auto weights = item.model->weights()) {
            found.push_back(std::move(weights));
        }
    }
    return found;
}

RTRAIN_DOOR void WorkerReports::require_parts_are_saved() const {
    if (run_.saves_state()) {
        checkpoint::Snapshot state;
        state.pieces["optimizer of a sharded model"] = {{1}, {}, true};
        (void)run_.select(std::move(state));
    }
}

/// Records a model before it is kept. The FLOPs of the first step are those of the first model.
RTRAIN_DOOR void WorkerReports::show(const torch::nn::Module& module) {
    std::function<std::optional<double>()> flops;
    if (prepared_count_ == 0) {
        flops = [count = std::make_shared<detail::FlopCount>()] { return count->of_first_step(); };
    }
    run_.journal().prepared(
        {.parts = detail::parts_of(module), .first_step_flops = std::move(flops)});
}

RTRAIN_DOOR std::string WorkerReports::Prepared::section() const {
    return "rtrain/hook/" + std::to_string(number);
}

/// Throws if ranks have drifted apart, so that their state is not saved as the model. `later`: see
/// PreparedModel. *Collective.*
RTRAIN_DOOR void WorkerReports::check_models(checkpoint::Compared* later) {
    for (const auto& [number, model] : prepared_) {
        if (!model->is_gone()) {
            model->check_parameters(later);
        }
    }
}

/// Saves outside of a report.
RTRAIN_DOOR void WorkerReports::save_between(const State& state) {
    const UserCall::In in(UserCall::save);
    reporting([&] {
        run_.save([&] {
            check_models();
            return snapshot_of(state);
        });
    });
}

RTRAIN_DOOR checkpoint::Snapshot WorkerReports::empty_snapshot() const {
    checkpoint::Snapshot snapshot;
    snapshot.rank = rank();
    snapshot.ranks = size();
    const auto& late_copies = options().run.checkpoint.late_copies;
    for (const Prepared& prepared : prepared_) {
        for (const at::Tensor& tensor : prepared.model->ignored()) {
            snapshot.own_of_ranks.insert(tensor.unsafeGetTensorImpl());
        }
        const bool ranks_differ = !prepared.model->sync(); // for example, LocalSgd
        for (const at::Tensor& tensor : prepared.model->shared()) {
            if (ranks_differ) {
                snapshot.own_of_ranks.insert(tensor.unsafeGetTensorImpl());
            } else if (!prepared.model->options().group) {
                snapshot.prepared.insert(tensor.unsafeGetTensorImpl());
            }
        }
        const bool is_sharded = prepared.model->weights() != nullptr;
        if (!prepared.model->is_gone() && late_copies.value_or(is_sharded)) {
            for (const at::Tensor& tensor : prepared.model->stepped()) {
                snapshot.stepped.insert(tensor.unsafeGetTensorImpl());
            }
        }
    }
    return snapshot;
}

/// Before the first epoch: throws on all ranks what a report of the state would throw. Allows
/// undefined tensors, which may be defined by then. *Collective.*
RTRAIN_DOOR void WorkerReports::require_can_be_saved(const State& state) {
    checkpoint::Snapshot snapshot = empty_snapshot();
    detail::succeed_together(*ranks(), [&] { state.save(snapshot); });
    checkpoint::add_bytes_of_ranks(snapshot, *ranks());
    std::erase_if(snapshot.tensors, [](const auto& item) { return !item.second.defined(); });
    std::erase_if(snapshot.pieces, [](const auto& item) {
        const auto& pieces = item.second.pieces;
        return !pieces.empty() && !pieces[0].elements.defined();
    });
    detail::succeed_together(
        *ranks(), [&] { checkpoint::require_can_be_written(run_.select(std::move(snapshot))); });
}

RTRAIN_DOOR checkpoint::Snapshot WorkerReports::snapshot_of(const State& state) {
    checkpoint::Snapshot snapshot = empty_snapshot();
    state.save(snapshot);
    checkpoint::add_bytes_of_ranks(snapshot, *ranks());
    checkpoint::require_equal_state(snapshot, *ranks());
    progress_.save(snapshot, *ranks());
    for (const Prepared& prepared : prepared_) {
        prepared.model->save_hook(StateWriter(snapshot, prepared.section()), run_.takes_rows());
    }
    return snapshot;
}

/// Call after saving a checkpoint.
RTRAIN_DOOR void WorkerReports::leave_if_preempted() const {
    if (run_.preempted()) {
        detail::leave_function(run_.context().attempt);
    }
}

/// True in the epoch whose report has stopped the run: the history ends with that report, as in a
/// run that is resumed after it.
RTRAIN_DOOR bool WorkerReports::is_behind_the_end() const {
    return run_.has_stopped() && state_;
}

/// Counts a report of a state; true if it is saved. Otherwise the run's interval decides, if set.
RTRAIN_DOOR bool WorkerReports::count_report() {
    const CheckpointConfig& config = options().run.checkpoint;
    const bool last = config.at_end && progress_.in_last_epoch();
    if (last || config.mean_time_between_failures_s) {
        return last;
    }
    return config.frequency <= 1 || ++state_reports_ % config.frequency == 0;
}

} // namespace rtrain
