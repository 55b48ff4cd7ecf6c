// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a search is made from, and what its trials get: TuneConfig as users give it, SearchPlan as
/// the controller takes it.
#pragma once

#include <rtrain/base/c_locale.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/config/run_name.hpp>
#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/record/trial.hpp>
#include <rtrain/tune/schedule/scheduler.hpp>
#include <rtrain/tune/schedule/stoppers.hpp>
#include <rtrain/tune/search/searcher.hpp>
#include <rtrain/tune/search/space.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace rtrain::tune {

/// A trial as those see it who name it.
struct TrialInfo {
    std::string id{};        ///< "00000", in the order in which trials are made
    std::int64_t number = 0; ///< the same as a number
    std::string name{};      ///< for dirname creators: what the name creator has said
    Config config{};
};

using NameCreator = std::function<std::string(const TrialInfo&)>;

/// Hears the reports of a trial, in their order; true at the one that is its last. May throw.
using TrialJudge = std::function<bool(const Config& report)>;

/// What the controller of a search is made from.
struct SearchPlan {
    Space space{};
    Goal goal{};
    AnySearcher searcher;
    AnyScheduler scheduler;
    int num_samples = 1;
    std::optional<double> time_budget_s{};
    /// Makes what judges the reports of a trial, anew for each start; empty: nobody does.
    std::function<TrialJudge()> judge{};
    /// How long a trial may train, in seconds, as `judge` has it, for those that can end between
    /// two reports.
    std::optional<double> time_limit_s{};
    Stoppers stoppers{};
    int max_failures = 0; ///< of each trial; -1: no limit
    std::optional<int> states_to_keep{};
    /// Throws for a configuration that no trial can be made from; empty: all are fine.
    std::function<void(const Config&)> check{};
    NameCreator trial_name{};
    NameCreator trial_dirname{};
    /// What a search must be gone on with, besides space, searcher and scheduler: the trainable's
    /// name and those of the data sets.
    Config identity{};
    /// Whether each trial is a run that takes itself up from its newest state, and reports nothing
    /// twice. Else a trial is begun with a state of its own, and repeats what it reported behind
    /// it.
    bool keeps_states_itself = false;
    /// True: a report without the goal's metric ends the search.
    bool require_metric = false;

    /// Of a new trial.
    [[nodiscard]] TrialRecord new_record(const std::string& id, Config config) const;
    /// Has `to`, a new directory, hold the state in `from`. Files of a state never change, so both
    /// share them where the file system has links.
    static void clone(const std::filesystem::path& from, const std::filesystem::path& to);
};

/// A state that a trial can go on from.
struct SavedState {
    std::string name{};       ///< of its directory, below the trial's; empty: there is none
    std::int64_t reports = 0; ///< its training_iteration
    double time_s = 0;        ///< its time_total_s
};

/// What a place runs next.
struct Assignment {
    std::string trial{};
    std::string name{};
    Config config{};
    std::filesystem::path directory{}; ///< of the trial; absolute; need not exist
    std::int64_t reports = 0;          ///< that count so far
    std::string state{};               ///< to go on from, a directory below; empty: from the start
    int taken_over = 0;            ///< how often it has begun anew, with another's state or none
    std::int64_t base_reports = 0; ///< that came before, with another's state; 0: it has none
    /// Seconds of training, counted by its run, behind which it ends between two reports, too.
    std::optional<double> time_limit_s{};
};

/// A trial that has taken over another's state and configuration.
struct TakenOver {
    std::string trial{};
    Exploit exploit{};
};

/// In a search's directory: the checkpoints that runs take over from others, until these have
/// begun.
inline constexpr const char* taken_over_directory = "taken_over";

/// Which trials a restored search runs again.
struct RestoreOptions {
    bool resume_unfinished = true; ///< those that wait, run or pause; else they end as they are
    bool resume_errored = false;   ///< from their newest state
    bool restart_errored = false;  ///< from the beginning
};

namespace internal {

/// "lr=0.01,layers=2" of a configuration, with what a file name takes, and not too long.
[[nodiscard]] inline std::string tag_of(const Config& config) {
    constexpr std::size_t longest = 100;
    constexpr const char* allowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-=,";
    std::string tag;
    for (const auto& item : config) {
        std::string value;
        if (const auto* const number = item.value().if_double()) {
            value = rtrain::detail::print("%.4g", *number);
        } else if (const auto* const word = item.value().if_string()) {
            value = *word;
        } else {
            value = json::serialize(item.value());
        }
        tag += (tag.empty() ? "" : ",") + std::string(item.key()) + "=" + value;
    }
    for (char& letter : tag) {
        letter = std::strchr(allowed, letter) != nullptr ? letter : '_';
    }
    return tag.substr(0, longest);
}

} // namespace internal

inline TrialRecord SearchPlan::new_record(const std::string& id, Config config) const {
    if (check) {
        check(config);
    }
    TrialInfo info{.id = id, .number = std::stoll(id), .config = std::move(config)};
    const auto checked = [&](std::string name, const char* whose) {
        if (name.empty() || name.find('/') != std::string::npos || name.starts_with('.') ||
            name == taken_over_directory) {
            throw ConfigError("RT-U104",
                              detail::concat(whose, " has named trial ", id, " \"", name,
                                             "\"; expected a file name, without '/', not beginning "
                                             "with '.', and not \"",
                                             taken_over_directory, "\""));
        }
        return name;
    };
    info.name = trial_name ? checked(trial_name(info), "trial_name_creator") : "trial_" + id;
    std::string tag = internal::tag_of(info.config);
    if (keeps_states_itself) { // a run's name
        std::replace(tag.begin(), tag.end(), '=', '-');
        std::replace(tag.begin(), tag.end(), ',', '_');
    }
    std::string directory = trial_dirname ? checked(trial_dirname(info), "trial_dirname_creator")
                                          : checked(info.name + "_" + tag, "a name");
    if (keeps_states_itself && !rtrain::detail::is_run_name(directory)) {
        throw ConfigError("RT-U104",
                          detail::concat("trial ", id, " would be a run of the name \"", directory,
                                         "\"; ", rtrain::detail::expected_run_name));
    }
    return {.id = id,
            .name = std::move(info.name),
            .config = std::move(info.config),
            .directory = std::move(directory)};
}

inline void SearchPlan::clone(const std::filesystem::path& from, const std::filesystem::path& to) {
    namespace fs = std::filesystem;
    const fs::path half = to.string() + ".half";
    fs::remove_all(half);
    fs::remove_all(to); // left by a controller that was killed before it could note it
    try {
        fs::create_directories(half);
        for (const auto& entry : fs::recursive_directory_iterator(from)) {
            const fs::path there = half / entry.path().lexically_relative(from);
            if (entry.is_directory()) {
                fs::create_directories(there);
                continue;
            }
            std::error_code error;
            fs::create_hard_link(entry.path(), there, error);
            if (error) {
                fs::copy_file(entry.path(), there);
            }
        }
        fs::rename(half, to);
    } catch (const fs::filesystem_error&) {
        std::error_code ignored;
        fs::remove_all(half, ignored);
        throw;
    }
}

} // namespace rtrain::tune
