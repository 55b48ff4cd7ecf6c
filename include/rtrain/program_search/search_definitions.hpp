// SPDX-License-Identifier: Apache-2.0
/// @file
/// Definitions of program_search/search.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/program/program_checks.hpp>
#include <rtrain/program/program_options.hpp>
#include <rtrain/program/program_run.hpp>
#include <rtrain/program_search/search.hpp>
#include <rtrain/program_search/trials.hpp>
#include <rtrain/tune/controller/generations.hpp>
#include <rtrain/tune/processes/trial_task.hpp>
#include <rtrain/tune/resources/this_machine.hpp>
#include <rtrain/tune/threads/trial.hpp>

#include <boost/json/array.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::detail {

/// The program's options, changed by the trial's configuration. "scaling/x" sets an option of
/// ScalingConfig, "datasets/x" a path of ProgramOptions::datasets; all else is merged into
/// ProgramOptions::config, object by object. Throws ConfigError [RT-U112] for an invalid name or
/// value.
[[nodiscard]] inline ProgramOptions program_of_trial(ProgramOptions options, const Config& config) {
    for (const auto& item : config) {
        const std::string_view key = item.key();
        const auto* const several = item.value().if_object();
        if (key == "scaling" && several != nullptr) {
            for (const auto& option : *several) {
                tune::internal::set_scaling(options.scaling, std::string(option.key()),
                                            option.value());
            }
        } else if (key == "datasets" && several != nullptr) {
            for (const auto& one : *several) {
                if (!one.value().is_string()) {
                    throw ConfigError("RT-U112",
                                      concat("the space gives \"datasets/", std::string(one.key()),
                                             "\" the value ", json::serialize(one.value()),
                                             "; give the path of its files"));
                }
                options.datasets[std::string(one.key())] = one.value().as_string();
            }
        } else {
            tune::internal::merge(options.config, Config{{key, item.value()}});
        }
    }
    return options;
}

RTRAIN_DOOR ProgramSearch::ProgramSearch(TunerOptions options, const ProgramOptions& program)
    : TunerCore(begin_session(), without_datasets(std::move(options)),
                json::serialize(boost::json::array(program.command.begin(), program.command.end())),
                [](const Config& config) { return config; }) {
    if (this->options().tune.bind_to_cores) {
        throw ConfigError("RT-U108", "tune.bind_to_cores is set, but a search over a program does "
                                     "not bind its trials; remove it, or start the command by "
                                     "taskset");
    }
}

RTRAIN_DOOR ResultGrid ProgramSearch::fit(const ProgramOptions& program) {
    return TunerCore::fit([&](int /*fit*/) {
        program::require_no_rank();
        return work(program);
    });
}

RTRAIN_DOOR TunerCore::Work ProgramSearch::work(const ProgramOptions& program) const {
    tune::Resources each = options().resources_per_trial;
    if (each == tune::Resources{}) {
        each.cpus = std::min(program.scaling.num_workers.value_or(1), this_machine().cpus);
    }
    const auto trials = std::make_shared<tune::ProgramTrials>(options().tune.force_trial_cleanup_s,
                                                              !options().tune.metric.empty());
    const auto check = [&program](const Config& config) {
        (void)program::complete(program_of_trial(program, config));
    };
    return {.plan = [this, &program, check] { return plan_of_runs(program.run, check); },
            .each = each,
            .function =
                [this, &program, trials](tune::Trial& trial, const Config&) {
                    trials->run(trial, options_of(trial, program));
                    return std::optional<double>();
                }};
}

RTRAIN_DOOR ProgramOptions ProgramSearch::options_of(const tune::Trial& trial,
                                                     const ProgramOptions& program) const {
    ProgramOptions changed = program_of_trial(program, trial.config());
    changed.run = run_of_trial(program.run, trial.directory());
    if (const std::string from = tune::internal::start_over(trial.assignment()); !from.empty()) {
        changed.resume_from = Checkpoint(from);
    }
    if (!trial.gpus().empty()) {
        changed.environment["CUDA_VISIBLE_DEVICES"] = visible_devices_of(trial.gpus());
    }
    constexpr const char* threads = "OMP_NUM_THREADS";
    if (changed.scaling.threads_per_worker == 0 && !changed.environment.contains(threads) &&
        std::getenv(threads) == nullptr) {
        const double cores = std::max(options().resources_per_trial.cpus, 1.0);
        const int ranks = changed.scaling.num_workers.value_or(1);
        changed.scaling.threads_per_worker = std::max(1, static_cast<int>(cores / ranks));
    }
    return changed;
}

} // namespace rtrain::detail
