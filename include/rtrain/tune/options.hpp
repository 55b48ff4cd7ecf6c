// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of a Tuner, for designated initialisers; names and defaults follow Ray Tune.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/tune/plan.hpp>
#include <rtrain/tune/resources.hpp>
#include <rtrain/tune/schedule/fifo.hpp>
#include <rtrain/tune/search/basic_variant.hpp>

#include <optional>
#include <string>

namespace rtrain {

/// How a search goes.
struct TuneConfig {
    /// Of the reports, what is to become large or small; "a/b" reads a nested one. A plain function
    /// returns it.
    std::string metric{};
    /// "max" or "min"; needed with a metric (RT-U108).
    std::optional<ScoreOrder> mode{};
    tune::AnySearcher search_alg = tune::BasicVariant{}; ///< suggests configurations
    tune::AnyScheduler scheduler = tune::Fifo{};         ///< stops, pauses and clones trials
    /// Trials; with grids, each grid so often. -1: until `time_budget_s` is up or `stop` says so.
    int num_samples = 1;
    /// Trials that run at once. Unset: as many as resources_per_trial leave room for.
    std::optional<int> max_concurrent_trials{};
    /// Seconds, more than 0, all starts of the search together. Then no trial begins, and those
    /// that run end at their next report; those of trainers also between two.
    std::optional<double> time_budget_s{};
    /// Whether the ranks of a trainer's trial take another one when they have ended it well, which
    /// saves their start. They must not rely on globals of theirs that the one before has changed.
    bool reuse_workers = true;
    /// Name trials, and their directories; without "/" (RT-U104).
    tune::NameCreator trial_name_creator{};
    tune::NameCreator trial_dirname_creator{}; ///< of a directory
    /// What ends the whole search. What ends one trial is RunConfig::stop.
    tune::Stoppers stop{};
    /// Seconds that a trial of a trainer has to return, once the search has seen enough of it. Then
    /// its processes are ended; its state was saved before. 0: no limit.
    double force_trial_cleanup_s = 600;
    /// Whether trials that run at once are bound to cores of their own, as many as
    /// resources_per_trial.cpus says, if that is a whole number; those of a trainer, if
    /// resources_per_trial is left as it is, to one for each of their ranks. A trial that finds
    /// fewer cores free, or has more ranks than cores, is not bound; none is within an mpirun,
    /// which binds its ranks. Other programs know nothing of it, and a second search would take the
    /// same cores.
    bool bind_to_cores = false;
    /// True: a report without a number `metric` ends the search (RT-U101). Else searcher and
    /// scheduler skip such reports, and the first one is a warning.
    bool require_metric = false;
};

/// What is searched, and how.
struct TunerOptions {
    tune::Space param_space{}; ///< which configurations there are
    TuneConfig tune{};         ///< how they are searched
    /// `name` and `storage_path` of the search. `stop` and `failure.max_failures` are those of each
    /// trial, and `checkpoint.num_to_keep` counts its states.
    RunConfig run{};
    data::Datasets datasets{}; ///< of a trainer; "datasets/x" of the space chooses from them
    /// What each trial takes of this machine.
    tune::Resources resources_per_trial{};
};

namespace detail {

/// Throws ConfigError [RT-U108].
inline void check_tune_config(const TuneConfig& tune) {
    if (!tune.metric.empty() && !tune.mode) {
        throw ConfigError("RT-U108", concat("tune.metric is ", tune.metric,
                                            ", but mode is unset; expected \"min\" or \"max\""));
    }
    if (tune.num_samples < -1 || tune.num_samples == 0) {
        throw ConfigError("RT-U108", concat("tune.num_samples is ", tune.num_samples,
                                            "; expected at least 1, or -1 for no limit"));
    }
    if (tune.num_samples == -1 && !tune.time_budget_s && tune.stop.empty()) {
        throw ConfigError("RT-U108", "tune.num_samples is -1, and nothing ends the search; set "
                                     "time_budget_s or stop");
    }
    if (tune.time_budget_s && !(*tune.time_budget_s > 0)) {
        throw ConfigError("RT-U108", concat("tune.time_budget_s is ", *tune.time_budget_s,
                                            "; expected more than 0"));
    }
    if (!(tune.force_trial_cleanup_s >= 0)) {
        throw ConfigError("RT-U108", concat("tune.force_trial_cleanup_s is ",
                                            tune.force_trial_cleanup_s, "; expected 0 or more"));
    }
    if (tune.max_concurrent_trials && *tune.max_concurrent_trials < 1) {
        throw ConfigError("RT-U108", concat("tune.max_concurrent_trials is ",
                                            *tune.max_concurrent_trials, "; expected at least 1"));
    }
}

/// Options of a search over a function or a class. Throws ConfigError [RT-U108] when they have data
/// sets, which only the trials of a trainer are given.
[[nodiscard]] inline TunerOptions without_datasets(TunerOptions options) {
    if (!options.datasets.empty()) {
        throw ConfigError(
            "RT-U108", concat("TunerOptions::datasets has \"", options.datasets.begin()->first,
                              "\", but the search is over a function or a class, which loads its "
                              "data itself; leave them out"));
    }
    return options;
}

/// Throws ConfigError [RT-U109] for a space that would change the search itself.
inline void check_tuned_names(const tune::Space& space) {
    for (const auto& entry : space) {
        if (entry.name == "run" || entry.name.starts_with("run/")) {
            throw ConfigError("RT-U109", concat("the space has \"", entry.name,
                                                "\", but RunConfig is the same for all trials; set "
                                                "it in TunerOptions::run"));
        }
    }
}

} // namespace detail
} // namespace rtrain
