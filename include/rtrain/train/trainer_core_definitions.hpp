// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door trainer_core.hpp: the role of this process in a fit() call. It is a driver that
/// launches ranks and waits, a launched rank or helper, or trains directly.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/config/callback.hpp>
#include <rtrain/journal/rank_logs.hpp>
#include <rtrain/launch/calls/call_board.hpp>
#include <rtrain/launch/calls/driver_calls.hpp>
#include <rtrain/launch/fit_driver.hpp>
#include <rtrain/launch/helper.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/process/fit_guard.hpp>
#include <rtrain/process/preemption/preemption_signals.hpp>
#include <rtrain/process/stdio/end_of_run.hpp>
#include <rtrain/run/make_way.hpp>
#include <rtrain/run/options/restore.hpp>
#include <rtrain/run/run.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/storage/file/lock.hpp>
#include <rtrain/track/callback/callback_observer.hpp>
#include <rtrain/train/generators.hpp>
#include <rtrain/train/one_libtorch.hpp>
#include <rtrain/train/preemption.hpp>
#include <rtrain/train/process_end.hpp>
#include <rtrain/train/trainer_core.hpp>
#include <rtrain/train/training.hpp>
#include <rtrain/train/uncaught.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace rtrain::detail {

RTRAIN_DOOR launch::Session& TrainerCore::begin_session() {
    handle_uncaught_errors();
    return launch::Session::of_this_process();
}

RTRAIN_DOOR TrainerCore::TrainerCore(launch::Session& session, TrainerOptions options,
                                     std::shared_ptr<AnyBackend> backend,
                                     std::shared_ptr<checkpoint::AnyPolicy> checkpoint)
    : session_(session), options_(std::move(options)), backend_(std::move(backend)),
      checkpoint_(std::move(checkpoint)) {
    check_options(options_);
    if (options_.run.fast_dev_run > 0) {
        options_.run.trackers.clear();
    }
}

RTRAIN_DOOR bool TrainerCore::can_restore(const std::filesystem::path& run_directory,
                                          const std::optional<storage::AnyFilesystem>& filesystem) {
    try {
        (void)read_trainer(run_directory, filesystem);
        return true;
    } catch (const TransientStorageError&) {
        throw;
    } catch (const Error&) {
        return false;
    }
}

RTRAIN_DOOR TrainerOptions TrainerCore::restored_options(
    const std::filesystem::path& run_directory, std::optional<TrainerOptions> options,
    const std::optional<storage::AnyFilesystem>& filesystem) {
    return detail::restored_options(run_directory, std::move(options), filesystem);
}

RTRAIN_DOOR Result TrainerCore::fit(const RunFunction& function, std::string type,
                                    const FurtherRuns* further) {
    FitGuard::require_none(ProcessContext::current());
    require_one_libtorch();
    function_type_ = std::move(type);
    further_ = further;
    const console::ScopedLogSettings speaking(options_.run.logging.level,
                                              options_.run.logging.json);
    const int fit = session_.next_fit();
    const bool helper = launch::Helper::is_this_process();
    if (session_.target() == fit) {
        helper ? serve_and_exit() : train_and_exit(fit, function);
    }
    if (const auto earlier = session_.recorded(fit)) {
        return earlier->get(run_filesystem());
    }
    if (helper) {
        throw LaunchError("RT-L4", concat("rank 0 did not record the outcome of fit() call ",
                                          fit + 1, " of this program"));
    }
    if (backend_->can_be_launched() && !backend_->launched_ranks()) {
        take_all_gpus();
        return driven(fit);
    }
    return recorded(fit, function);
}

RTRAIN_DOOR int TrainerCore::begin_calls(const CallFunction& function, std::string type) {
    FitGuard::require_none(ProcessContext::current());
    require_one_libtorch();
    function_type_ = std::move(type);
    if (options_.run.name.empty()) {
        options_.run.name = generated_name();
    }
    const int fit = session_.next_fit();
    if (session_.target() == fit) {
        if (launch::Helper::is_this_process()) {
            serve_and_exit();
        }
        const auto tell = [this](const launch::event::Answer& answer) { session_.tell(answer); };
        launch::DriverCalls calls(session_.answers(),
                                  launch::rank() == 0
                                      ? std::function<void(const launch::event::Answer&)>(tell)
                                      : nullptr);
        train_and_exit(fit, [&](Run& run) { function(run, calls); });
    }
    return fit;
}

RTRAIN_DOOR Result TrainerCore::serve(int fit, const CallFunction& function,
                                      launch::CallBoard& calls) {
    const console::ScopedLogSettings speaking(options_.run.logging.level,
                                              options_.run.logging.json);
    calls_ = &calls;
    if (backend_->can_be_launched() && !backend_->launched_ranks()) {
        take_all_gpus();
        return driven(fit);
    }
    return recorded(fit, [&](Run& run) { function(run, calls); });
}

RTRAIN_DOOR bool TrainerCore::leads() const {
    return backend_->can_be_launched() ? launch::rank().value_or(0) == 0 : backend_->rank() == 0;
}

RTRAIN_DOOR storage::Location TrainerCore::location() const {
    return run_location(options_.run, named_run().name);
}

RTRAIN_DOOR void TrainerCore::say_preempted(const Error& error) const {
    if (leads()) {
        console::say("%s", error.message().c_str());
    }
}

/// The file system of Result::path, if not local.
RTRAIN_DOOR std::optional<storage::AnyFilesystem> TrainerCore::run_filesystem() const {
    const auto root = storage_root(options_.run);
    return root.filesystem.is_local() ? std::nullopt : std::optional(root.filesystem);
}

/// A restarted run must find its directory again, so the driver names the run. The search names
/// trials.
RTRAIN_DOOR RunConfig TrainerCore::named_run() const {
    RunConfig run = options_.run;
    if (run.name.empty()) {
        run.name = generated_name();
    }
    if (run.fast_dev_run > 0 && session_.trial().empty()) {
        run.name += fast_dev_suffix;
    }
    return run;
}

/// If num_workers is unset, sets it to the number of ranks that this machine's GPUs allow.
RTRAIN_DOOR void TrainerCore::take_all_gpus() {
    ScalingConfig& scaling = options_.scaling;
    if (scaling.use_gpu && !scaling.num_workers && scaling.gpus_per_worker > 0) {
        const double ranks = backend_->local_devices() / scaling.gpus_per_worker;
        scaling.num_workers = std::max(1, static_cast<int>(std::min(ranks + 1e-6, 1024.0)));
    }
}

RTRAIN_DOOR Result TrainerCore::driven(int fit) {
    try {
        return launched(fit);
    } catch (const std::bad_alloc&) {
        const LaunchError error(
            "RT-L16",
            "the driver ran out of memory, and no rank is left; run the same command to resume");
        session_.record(fit, launch::FitOutcome::of(error));
        throw error;
    }
}

/// Returns the context for callbacks in the driver.
RTRAIN_DOOR track::RunInfo TrainerCore::context_of(const RunConfig& run) const {
    const storage::Location at = run_location(run, run.name);
    std::size_t known = 0;
    try {
        known = Result::from_path(at.path, at.filesystem).metrics_history.size();
    } catch (const Error&) { // no report yet
    }
    return {.name = run.name,
            .directory = at.path,
            .location = at.filesystem.uri(at.path),
            .config = options_.config,
            .position = {.iteration = static_cast<std::int64_t>(known)},
            .ranks = options_.scaling.num_workers.value_or(1)};
}

/// Launches ranks to train, and waits for them.
RTRAIN_DOOR Result TrainerCore::launched(int fit) {
    RunConfig run = named_run();
    if (!backend_->can_survive_deaths() && std::exchange(run.failure.keep_survivors, false)) {
        console::warn("keep_survivors has no effect: this program is not compiled for an MPI with "
                      "ULFM, or its backend does not use it");
    }
    require_free({session_, fit}, run);
    make_way(run, run.name);
    std::vector<track::GuardedCallback> callbacks;
    const auto tell = [&](const Failure& failure) {
        for (track::GuardedCallback& callback : callbacks) {
            callback.call([&](const track::AnyCallback& it) {
                it.after_exception(context_of(run), {{failure.rank, failure.text()}});
            });
        }
    };
    std::optional<track::RankLogs> logs;
    const auto resume = [&] {
        callbacks = {run.callbacks.begin(), run.callbacks.end()};
        logs.reset();
        if (run.logging.to_file) {
            logs.emplace(run_location(run, run.name), run.logging.json,
                         [](const std::string& what) { console::warn("%s", what.c_str()); });
        }
    };
    resume();
    const auto on_run = [&](const std::string& what) {
        options_ = further_->options(launch::call_in(what));
        run = named_run();
        resume();
    };
    const launch::FitOutcome ending = launch::FitDriver({.call = {session_, fit},
                                                         .config = options_.config,
                                                         .scaling = options_.scaling,
                                                         .run = run,
                                                         .tell = tell,
                                                         .logs = logs ? &*logs : nullptr,
                                                         .on_run = on_run,
                                                         .calls = calls_})
                                          .run();
    if (ending.has_code(PreemptionError::own_code)) {
        if (calls_ != nullptr) { // main() may be anywhere
            throw PreemptionError(ending.failure->message);
        }
        console::say("%s", ending.failure->message.c_str());
        exit_preempted();
    }
    return ending.get(run_filesystem());
}

/// Trains in this process; records the outcome for processes started for a later call.
RTRAIN_DOOR Result TrainerCore::recorded(int fit, const RunFunction& function) {
    try {
        Result result =
            train({session_, fit, false, function_type_}, function, [&](const Error& error) {
                end_process({session_, fit}, backend_->rank() == 0, error);
            });
        session_.record(fit, {.run = result.path});
        return result;
    } catch (const PreemptionError& error) {
        if (calls_ != nullptr) { // main() may be anywhere
            throw;
        }
        end_process({session_, fit}, backend_->rank() == 0, error);
    } catch (const std::exception& error) {
        session_.record(fit, launch::FitOutcome::of(error));
        throw;
    }
}

/// Runs a helper: validates checkpoints until rank 0 ends it.
RTRAIN_DOOR void TrainerCore::serve_and_exit() {
    const FitGuard serving(ProcessContext::current());
    session_.unmute();
    const auto validate = [this](const Checkpoint& checkpoint, const Config& task) {
        try {
            return options_.validation.function(checkpoint, task);
        } catch (const std::exception& error) {
            throw std::runtime_error(text_of(error));
        }
    };
    launch::Helper::serve(validate, run_filesystem());
    std::fflush(nullptr);
    ::_exit(EXIT_SUCCESS);
}

/// Runs a rank launched by a driver: trains, records the outcome for the driver, and exits.
RTRAIN_DOOR void TrainerCore::train_and_exit(int fit, const RunFunction& function) {
    session_.unmute();
    try {
        session_.watch_driver();
        if (further_ != nullptr) {
            backend_->stay_joined();
        }
        Generators generators;
        const auto end = [&](const Error& error) { end_together(fit, error); };
        Result result = train({session_, fit, false, function_type_}, function, end);
        while (begin_another_run()) {
            generators.restore(); // as in new processes
            result = train({session_, fit, /*follows=*/true, function_type_}, function, end);
        }
        if (backend_->rank() == 0) {
            session_.record(fit, {.run = result.path});
        }
        end_together();
    } catch (const TrainingFailedError& error) { // ranks have agreed on it, or on this:
        end_together(fit, error);
    } catch (const PreemptionError& error) {
        end_together(fit, error);
    } catch (const std::exception& error) {
        session_.record(fit, launch::FitOutcome::of(error));
        session_.last_words(error);
        std::fflush(nullptr);
        ::_exit(EXIT_FAILURE); // others may wait forever; mpirun ends them
    }
}

/// Waits after a run for the next one, unless something has failed. Ranks have joined when it
/// begins. *Collective.*
RTRAIN_DOOR bool TrainerCore::begin_another_run() {
    if (further_ == nullptr || !is_sound_) {
        return false;
    }
    launch::print_end_of_run();
    backend_->start(options_.scaling);
    const bool leads = backend_->rank() == 0;
    if (leads) {
        session_.tell(launch::event::RunEnded{});
        further_->calls.answer({.number = runs_});
    }
    std::string text;
    while (text.empty()) { // others must not wait for rank 0 for too long
        constexpr std::chrono::seconds while_it_is_short{10};
        if (const auto next =
                leads ? further_->calls.wait(runs_ + 1, while_it_is_short) : std::nullopt) {
            text = json::serialize(to_json(*next));
        }
        text = broadcast(*backend_, text, 0);
    }
    const launch::Call next = launch::call_in(text);
    if (next.name == launch::shutdown_call) {
        (void)backend_->finish(std::nullopt);
        return false;
    }
    runs_ = next.number;
    options_ = further_->options(next);
    if (leads) {
        constexpr std::chrono::seconds patience{2};
        session_.tell(launch::event::RunBegins{text});
        (void)session_.flush(patience);
        further_->calls.begun(next);
    }
    return true;
}

RTRAIN_DOOR void TrainerCore::end_together(int fit, const Error& error) {
    if (backend_->rank() == 0) {
        session_.record(fit, launch::FitOutcome::of(error));
    }
    end_together();
}
RTRAIN_DOOR void TrainerCore::end_together() {
    session_.tell(launch::event::Done{});
    std::exit(EXIT_SUCCESS);
}

RTRAIN_DOOR Result TrainerCore::train(launch::FitCall call, const RunFunction& function,
                                      std::function<void(const Error&)> end_process) {
    const FitGuard training(call.context);
    const std::string& launched = session_.run_name();
    Training it({.backend = *backend_,
                 .policy = *checkpoint_,
                 .options = options_,
                 .run_name = launched.empty() || call.follows ? named_run().name : launched,
                 .call = call},
                std::move(end_process));
    Result result = it.run(function);
    is_sound_ = !it.has_restarted();
    return result;
}

} // namespace rtrain::detail
