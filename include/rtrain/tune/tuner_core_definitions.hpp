// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door tuner_core.hpp: sets up a search over a plain function, and runs this process's
/// part of it.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/failure_json.hpp>
#include <rtrain/comm/world/shared_text.hpp>
#include <rtrain/console/screen.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/launch/fit_outcome.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/process/fit_guard.hpp>
#include <rtrain/process/os/environment.hpp>
#include <rtrain/process/stack/loaded_from.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/run/options/restore.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/run/stop_judge.hpp>
#include <rtrain/tune/controller/controller.hpp>
#include <rtrain/tune/controller/search_directory.hpp>
#include <rtrain/tune/processes/search_link.hpp>
#include <rtrain/tune/processes/trial_process.hpp>
#include <rtrain/tune/processes/trial_processes.hpp>
#include <rtrain/tune/processes/trial_task.hpp>
#include <rtrain/tune/ranks/parent_death_signal.hpp>
#include <rtrain/tune/ranks/slot_places.hpp>
#include <rtrain/tune/ranks/slots.hpp>
#include <rtrain/tune/ranks/trial_worker.hpp>
#include <rtrain/tune/record/trial_files.hpp>
#include <rtrain/tune/record/trial_table.hpp>
#include <rtrain/tune/resources/this_machine.hpp>
#include <rtrain/tune/threads/trial_settings.hpp>
#include <rtrain/tune/tuner_core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace rtrain::detail {

/// result.json and its siblings of a trial of a plain function.
[[nodiscard]] inline tune::FunctionRunner::Files new_trial_files(const tune::Assignment& trial) {
    auto files = std::make_shared<tune::TrialFiles>(trial.directory, trial.trial, trial.config,
                                                    trial.reports, trial.taken_over);
    return [files](const Config& report) { files->append(report); };
}

RTRAIN_DOOR launch::Session& TunerCore::begin_session() {
    return launch::Session::of_this_process();
}

RTRAIN_DOOR TunerCore::TunerCore(launch::Session& session, TunerOptions options,
                                 std::string trainable, ConfigFor config_for, const void* function)
    : session_(&session), options_(std::move(options)), trainable_(std::move(trainable)),
      config_for_(config_for), function_(function) {
    check_tune_config(options_.tune);
    check_stop(options_.run.stop);
    check_failure_config(options_.run.failure);
    check_checkpoint_config(options_.run.checkpoint);
    check_tuned_names(options_.param_space);
    check_run_name(options_.run.name);
    if (options_.run.name.empty()) {
        options_.run.name = generated_name();
    }
    const storage::Location root = storage_root(options_.run);
    if (!root.filesystem.is_local()) {
        throw ConfigError("RT-U108", concat("storage_path is ", root.filesystem.uri(root.path),
                                            "; give a directory on a file system of this machine"));
    }
    directory_ = std::filesystem::path(root.path) / options_.run.name;
}

RTRAIN_DOOR tune::Goal TunerCore::goal() const {
    return {.metric = options_.tune.metric, .mode = options_.tune.mode.value_or(ScoreOrder::max)};
}

RTRAIN_DOOR tune::SearchPlan TunerCore::plan() const {
    const TuneConfig& tune = options_.tune;
    tune::SearchPlan plan{.space = options_.param_space,
                          .goal = goal(),
                          .searcher = tune.search_alg,
                          .scheduler = tune.scheduler,
                          .num_samples = tune.num_samples,
                          .time_budget_s = tune.time_budget_s,
                          .stoppers = tune.stop,
                          .max_failures = options_.run.failure.max_failures,
                          .states_to_keep = options_.run.checkpoint.num_to_keep,
                          .check = [this](const Config& config) { (void)config_for_(config); },
                          .trial_name = tune.trial_name_creator,
                          .trial_dirname = tune.trial_dirname_creator,
                          .identity = {{"trainable", trainable_}},
                          .require_metric = tune.require_metric};
    boost::json::array names;
    for (const auto& [name, dataset] : options_.datasets) {
        names.emplace_back(name);
    }
    plan.identity["datasets"] = std::move(names);
    if (const auto place = function_ != nullptr ? place_in_file(function_) : std::nullopt) {
        plan.identity["function"] = {{"program", place->file}, {"address", place->address}};
    }
    plan.judge = judge_of(options_.run.stop);
    return plan;
}

/// Ranks of later fit() calls are sent the outcome of this one.
RTRAIN_DOOR ResultGrid TunerCore::fit(const std::function<Work(int fit)>& work) {
    FitGuard::require_none(ProcessContext::current());
    const int fit = session_->next_fit();
    if (const auto earlier = session_->recorded(fit)) {
        if (earlier->failure) {
            throw_error(*earlier->failure);
        }
        return ResultGrid::from_path(earlier->run);
    }
    if (session_->target()) {
        throw ConfigError(
            "RT-U110",
            "a process that was started for another fit() call has reached a search; make the same "
            "fit() calls in the same order in all processes of the program");
    }
    try {
        ResultGrid results =
            launch::ranks() ? search_among_ranks(work(fit)) : search(work(fit), nullptr);
        session_->record(fit, {.run = directory_});
        return results;
    } catch (const std::exception& error) {
        session_->record(fit, launch::FitOutcome::of(error));
        throw;
    }
}

RTRAIN_DOOR ResultGrid TunerCore::fit(const tune::TrialFunction& function) {
    return fit([&](int /*fit*/) {
        Work work{.plan = [this] { return plan(); },
                  .each = options_.resources_per_trial,
                  .function = tune::internal::with_own_settings(function),
                  .files = new_trial_files};
        if (options_.tune.bind_to_cores) {
            work.cores_of = [cores = tune::own_cores(work.each)](const Config&) { return cores; };
        }
        return work;
    });
}

/// `slots`: the ranks of one mpirun, if any.
RTRAIN_DOOR ResultGrid TunerCore::search(const Work& work, tune::Slots* slots) {
    const int most = options_.tune.max_concurrent_trials.value_or(0);
    auto places = slots == nullptr ? tune::places_for(work.each, this_machine(), most)
                                   : tune::slot_places(slots->ranks(), work.each, most);
    const bool binds = work.cores_of && slots == nullptr; // an mpirun binds its ranks
    std::optional<tune::SearchDirectory> search;
    search.emplace(work.plan(), directory_, restore_);
    const tune::TrialFunction function = [&](tune::Trial& trial, const Config& config) {
        return trial.place().slot == 0 ? work.function(trial, config) : slots->run(trial);
    };
    constexpr std::uint64_t share_for_states = 4; // a quarter
    const bool keeps = search->controller().plan().scheduler.has_orders();
    tune::FunctionRunner(
        search->controller(), function, std::move(places),
        {.at_ends = [&] { search->write_state_now_and_then(); },
         .files = work.files,
         .memory_for_states = keeps ? memory_of_this_machine() / share_for_states : 0,
         .cores = binds ? cores_of_this_machine() : std::vector<int>(),
         .cores_of = binds ? work.cores_of : nullptr})
        .run();
    search->close();
    const std::vector<tune::TrialRecord> records = search->controller().records();
    search.reset(); // its memory is needed for the results
    if (options_.run.console.verbose > 0) {
        console::Screen& screen = console::Screen::current();
        screen.print(tune::trial_table(records, goal(), screen.columns()));
    }
    if (slots != nullptr) {
        boost::json::array trials;
        for (const tune::TrialRecord& trial : records) {
            trials.push_back(tune::to_json(trial));
        }
        slots->end({{"directory", directory_.string()}, {"trials", std::move(trials)}});
    }
    return {directory_, records, goal()};
}

/// Called by all ranks of one mpirun: rank 0 leads the search, the others run its trials. MPI only
/// exchanges the address, because training in a slot may use the whole process.
RTRAIN_DOOR ResultGrid TunerCore::search_among_ranks(const Work& work) {
    const ParentDeathSignal ends;
    std::optional<tune::Slots> slots;
    try {
        const auto shared = comm::share_text([&](bool one_node) {
            slots.emplace(one_node);
            return slots->address();
        });
        if (shared.rank > 0) {
            return serve(work, shared.text, shared.rank);
        }
        slots->accept(shared.size - 1, this_machine());
        return search(work, &*slots);
    } catch (const std::exception& error) {
        if (dynamic_cast<const tune::SearchBroken*>(&error) != nullptr) {
            comm::leave_without_mpi();
        }
        if (slots) {
            slots->end({{"failure", to_json(failure_of(error))}});
        }
        throw;
    }
}

RTRAIN_DOOR ResultGrid TunerCore::serve(const Work& work, const std::string& address, int rank) {
    const auto end = tune::TrialWorker(address, rank, this_machine()).serve(work.function);
    if (const auto* const saved = end.if_contains("failure")) {
        const Failure failure = failure_from(saved->as_object());
        if (failure.code == "RT-U114") { // may not reach this rank before MPI is finalized
            throw tune::SearchBroken("RT-U114", failure.message);
        }
        throw_error(failure);
    }
    directory_ = std::string(end.at("directory").as_string());
    std::vector<tune::TrialRecord> trials;
    for (const auto& trial : end.at("trials").as_array()) {
        trials.push_back(tune::trial_from_json(trial.as_object()));
    }
    return {directory_, trials, goal()};
}

RTRAIN_DOOR RunConfig TunerCore::run_of_trials(const RunConfig& trainer) const {
    RunConfig run = options_.run;
    inherit(run, trainer);
    if (run.callbacks.empty()) {
        run.callbacks = trainer.callbacks;
    }
    if (run.trackers.empty()) {
        run.trackers = trainer.trackers;
    }
    if (run.stop.empty()) {
        run.stop = trainer.stop;
    }
    return run;
}

RTRAIN_DOOR RunConfig TunerCore::run_of_trial(const RunConfig& trainer,
                                              const std::filesystem::path& directory) const {
    RunConfig run = run_of_trials(trainer);
    run.name = directory.filename().string();
    run.storage_path = directory.parent_path();
    run.resume = Resume::always; // the search determines the run of a trial
    run.console.verbose = std::max(0, run.console.verbose - 1);
    run.console.live.reset(); // all trials would need the same port
    return run;
}

/// A run resumes by itself, and tolerates failures. The search applies its stop conditions; it
/// receives each report before other observers of the run.
RTRAIN_DOOR tune::SearchPlan
TunerCore::plan_of_runs(const RunConfig& trainer, std::function<void(const Config&)> check) const {
    tune::SearchPlan plan = this->plan();
    const stop::Conditions stop = run_of_trials(trainer).stop;
    plan.judge = judge_of(stop);
    plan.time_limit_s = StopJudge(stop).time_limit_s();
    plan.keeps_states_itself = true;
    plan.max_failures = 0;
    plan.check = std::move(check);
    return plan;
}

/// Cores of a run: one for each rank, or resources_per_trial.cpus if that is more.
RTRAIN_DOOR std::size_t TunerCore::cores_of_run(const TrainerOptions& trainer,
                                                const Config& config) const {
    const auto options = tune::trial_options(trainer, config, options_.datasets);
    const auto ranks = static_cast<std::size_t>(options.scaling.num_workers.value_or(1));
    const tune::Resources& each = options_.resources_per_trial;
    const std::size_t given = each == tune::Resources{} ? ranks : tune::own_cores(each);
    return given >= ranks ? given : 0;
}

RTRAIN_DOOR ResultGrid TunerCore::fit(const TrainerOptions& trainer) {
    return fit([&](int fit) {
        tune::Resources each = options_.resources_per_trial;
        const int ranks = trainer.scaling.num_workers.value_or(1);
        const bool share_cores = each == tune::Resources{};
        each.cpus = share_cores ? std::min(ranks, this_machine().cpus) : each.cpus;
        auto variables = session_->input_variables();
        if (std::getenv("OMP_NUM_THREADS") == nullptr) {
            variables["OMP_NUM_THREADS"] =
                std::to_string(std::max(1, static_cast<int>(each.cpus / ranks)));
        }
        const auto processes = std::make_shared<tune::TrialProcesses>(
            tune::TrialLaunch{.session_use = session_->directory().use(),
                              .session = session_->directory().path(),
                              .fit = fit,
                              .variables = std::move(variables),
                              .trial_variable = launch::Session::trial_variable,
                              .cleanup_s = options_.tune.force_trial_cleanup_s,
                              .reuse = options_.tune.reuse_workers,
                              .max_failures = run_of_trials(trainer.run).failure.max_failures});
        const auto check = [&](const Config& config) {
            (void)config_for_(tune::trial_options(trainer, config, options_.datasets).config);
        };
        Work work{.plan = [&, check] { return plan_of_runs(trainer.run, check); },
                  .each = each,
                  .function =
                      [processes](tune::Trial& trial, const Config&) {
                          processes->run(trial);
                          return std::optional<double>();
                      }};
        if (options_.tune.bind_to_cores) {
            work.cores_of = [&](const Config& config) { return cores_of_run(trainer, config); };
        }
        return work;
    });
}

RTRAIN_DOOR bool TunerCore::is_in_trial() const {
    return !session_->trial().empty() &&
           tune::TrialTask::read(session_->trial()).fit == session_->upcoming_fit();
}

RTRAIN_DOOR TrainerOptions
TunerCore::trial_options(const TrainerOptions& trainer, const tune::TrialTask& task,
                         const std::shared_ptr<tune::internal::SearchLink>& link) const {
    TrainerOptions options = tune::trial_options(trainer, task.config, options_.datasets);
    options.config = config_for_(options.config);
    options.run = run_of_trial(trainer.run, task.directory);
    const stop::Condition asks([link](const Config& report) { return link->report(report); });
    options.run.stop = {asks};
    if (task.time_limit_s) { // also between two reports, which the search does not see
        constexpr double least = 1e-3;
        options.run.stop = {asks, stop::MaxTime{std::max(*task.time_limit_s, least)}};
    }
    options.run.callbacks.emplace_back(tune::internal::CheckpointNotifier{link});
    if (!task.resume_from.empty()) {
        options.resume_from = Checkpoint(task.resume_from);
    }
    return options;
}

RTRAIN_DOOR void TunerCore::drive_trials(
    const TrainerOptions& trainer, const std::function<void()>& begin,
    const std::function<void(const TrainerOptions&, const FurtherRuns&)>& train) const {
    const auto outcome = tune::TrialProcess::outcome_of(session_->trial());
    tune::internal::TrialCalls calls(tune::TrialTask::read(session_->trial()));
    const auto options = [&](const launch::Call& trial) {
        begin();
        return trial_options(trainer, calls.begin(trial), calls.search());
    };
    session_->unmute();
    boost::json::object told;
    try {
        train(options(calls.first()), {calls, options});
    } catch (const std::exception& error) {
        told = to_json(failure_of(error));
    }
    session_->directory().remove();
    storage::replace_file_unsynced(outcome, json::serialize(told));
    std::fflush(nullptr);
    ::_exit(EXIT_SUCCESS);
}

RTRAIN_DOOR ResultGrid TunerCore::get_results() const {
    return ResultGrid::from_path(directory_);
}

RTRAIN_DOOR bool TunerCore::can_restore(const std::filesystem::path& directory) {
    return tune::SearchDirectory::holds_search(directory);
}

RTRAIN_DOOR TunerOptions TunerCore::restored(const std::filesystem::path& directory,
                                             TunerOptions options) {
    if (!can_restore(directory)) {
        throw StorageError("RT-U106", concat(directory.string(), " does not hold a search"));
    }
    const auto whole = std::filesystem::absolute(directory / ".").lexically_normal().parent_path();
    options.run.name = whole.filename().string();
    options.run.storage_path = whole.parent_path();
    return options;
}

} // namespace rtrain::detail
