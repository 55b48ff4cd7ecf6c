// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of a Tuner, for designated initialisers; names and defaults follow Ray Tune.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/tune/controller/plan.hpp>
#include <rtrain/tune/resources/resources.hpp>
#include <rtrain/tune/schedule/fifo.hpp>
#include <rtrain/tune/search/basic_variant.hpp>

#include <optional>
#include <string>

namespace rtrain {

/// Options of a search.
struct TuneConfig {
    /// The metric of the reports to optimize; "a/b" reads a nested value. A plain function returns
    /// it.
    std::string metric{};
    /// "max" or "min"; needed with a metric (RT-U108).
    std::optional<ScoreOrder> mode{};
    tune::AnySearcher search_alg = tune::BasicVariant{}; ///< suggests configurations
    tune::AnyScheduler scheduler = tune::Fifo{};         ///< stops, pauses and clones trials
    /// Number of trials; with grids, repetitions of each grid. -1: until `time_budget_s` is up or
    /// `stop` holds.
    int num_samples = 1;
    /// Limit on concurrent trials. Unset: as many as resources_per_trial allows.
    std::optional<int> max_concurrent_trials{};
    /// Seconds, more than 0, over all starts of the search. After that no trial begins, and running
    /// ones end at their next report; trials of a trainer also between two.
    std::optional<double> time_budget_s{};
    /// True: the ranks of a trainer's trial run another one after they have ended it well, which
    /// saves their start. They must not rely on globals that the previous trial has changed.
    bool reuse_workers = true;
    /// Names of trials, without "/" (RT-U104).
    tune::NameCreator trial_name_creator{};
    tune::NameCreator trial_dirname_creator{}; ///< names of their directories, the same
    /// Ends the whole search; RunConfig::stop ends one trial.
    tune::Stoppers stop{};
    /// Seconds that a trainer's trial has to return after the search has stopped it. Then its
    /// processes are killed; its state was saved before. 0: no limit.
    double force_trial_cleanup_s = 600;
    /// Binds concurrent trials to separate cores, if resources_per_trial.cpus is a whole number.
    /// With default resources_per_trial, a trainer's trial has a core for each rank. A trial that
    /// finds fewer cores free, or has more ranks than cores, is not bound. Nothing is bound within
    /// an mpirun, which binds its ranks. Other programs are not aware of the binding; a second
    /// search would use the same cores.
    bool bind_to_cores = false;
    /// True: a report without a number `metric` ends the search (RT-U101). False: searcher and
    /// scheduler skip such reports, with a warning at the first one.
    bool require_metric = false;
};

/// Options of a Tuner: the space and the search.
struct TunerOptions {
    tune::Space param_space{}; ///< possible configurations
    TuneConfig tune{};         ///< options of the search
    /// `name` and `storage_path` of the search. `stop` and `failure.max_failures` apply to each
    /// trial, and `checkpoint.num_to_keep` counts its states.
    RunConfig run{};
    data::Datasets datasets{}; ///< of a trainer; "datasets/x" of the space selects from them
    /// Resources of this machine for each trial.
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
        throw ConfigError(
            "RT-U108",
            "tune.num_samples is -1, but no other limit is set; set time_budget_s or stop");
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

/// Options of a search over a function, a class or a program. Throws ConfigError [RT-U108] when
/// they have data sets, which only trials of a trainer receive.
[[nodiscard]] inline TunerOptions without_datasets(TunerOptions options) {
    if (!options.datasets.empty()) {
        throw ConfigError("RT-U108",
                          concat("TunerOptions::datasets has \"", options.datasets.begin()->first,
                                 "\", but only a search over a trainer takes datasets; remove "
                                 "them and load the data in the trial"));
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
