// SPDX-License-Identifier: Apache-2.0
/// @file
/// Inputs of a search and of its trials: TuneConfig is set by users, SearchPlan is for the
/// controller.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/c_locale.hpp>
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

/// A trial, as passed to name creators.
struct TrialInfo {
    std::string id{};        ///< "00000", in the order in which trials are created
    std::int64_t number = 0; ///< the same as a number
    std::string name{};      ///< for dirname creators: the result of the name creator
    Config config{};
};

using NameCreator = std::function<std::string(const TrialInfo&)>;

/// Receives the reports of a trial in order; returns true at the last one. May throw.
using TrialJudge = std::function<bool(const Config& report)>;

/// Inputs of the controller of a search.
struct SearchPlan {
    Space space{};
    Goal goal{};
    AnySearcher searcher;
    AnyScheduler scheduler;
    int num_samples = 1;
    std::optional<double> time_budget_s{};
    /// Creates the judge of a trial's reports, once for each start; empty: no judge.
    std::function<TrialJudge()> judge{};
    /// Training time limit of a trial in seconds, the same as in `judge`, for trials that can end
    /// between two reports.
    std::optional<double> time_limit_s{};
    Stoppers stoppers{};
    int max_failures = 0; ///< of each trial; -1: no limit
    std::optional<int> states_to_keep{};
    /// Throws for a configuration that is not valid for a trial; empty: all are valid.
    std::function<void(const Config&)> check{};
    NameCreator trial_name{};
    NameCreator trial_dirname{};
    /// Must be the same when the search is resumed, as must space, searcher and scheduler: the
    /// names of the trainable and of the data sets.
    Config identity{};
    /// True if each trial is a run that resumes from its newest state by itself and reports nothing
    /// twice. Otherwise a trial is started with a saved state, and repeats the reports made after
    /// it.
    bool keeps_states_itself = false;
    /// True: a report without the goal's metric ends the search.
    bool require_metric = false;

    /// Creates the record of a new trial.
    [[nodiscard]] TrialRecord new_record(const std::string& id, Config config) const;
    /// Copies the state in `from` to the new directory `to`. Files of a state never change, so both
    /// share them if the file system has links.
    static void clone(const std::filesystem::path& from, const std::filesystem::path& to);
};

/// A state that a trial can resume from.
struct SavedState {
    std::string name{};       ///< of its directory, below the trial's; empty: no state
    std::int64_t reports = 0; ///< its training_iteration
    double time_s = 0;        ///< its time_total_s
};

/// A trial to run next in a place.
struct Assignment {
    std::string trial{};
    std::string name{};
    Config config{};
    std::filesystem::path directory{}; ///< of the trial; absolute; need not exist
    std::int64_t reports = 0;          ///< reports that count so far
    std::string state{};               ///< to resume from, a directory below; empty: from the start
    int taken_over = 0; ///< how often it has started over, with another trial's state or none
    std::int64_t base_reports = 0; ///< earlier reports, of another trial's state; 0: none
    /// Limit on training time, in seconds, as measured by the run; a run that exceeds it stops even
    /// between reports.
    std::optional<double> time_limit_s{};
};

/// An exploit: a trial has taken over another's state and configuration.
struct AppliedExploit {
    std::string trial{};
    Exploit exploit{};
};

/// In a search's directory: the checkpoints that runs take over from others, until these runs
/// begin.
inline constexpr const char* taken_over_directory = "taken_over";

/// Selects the trials that a restored search runs again.
struct RestoreOptions {
    bool resume_unfinished =
        true; ///< those that wait, run or are paused; if false, they end as they are
    bool resume_errored = false;  ///< from their newest state
    bool restart_errored = false; ///< from the beginning
};

namespace internal {

/// A configuration as "lr=0.01,layers=2", limited to characters for file names and in length.
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
            throw ConfigError(
                "RT-U104",
                detail::concat(
                    whose, " returned for trial ", id, " the name \"", name,
                    "\"; return a file name without '/' that does not begin with '.' and is not \"",
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
                                          : checked(info.name + "_" + tag, "trial_name_creator");
    if (keeps_states_itself && !rtrain::detail::is_run_name(directory)) {
        throw ConfigError("RT-U104",
                          detail::concat("the run of trial ", id, " would have the name \"",
                                         directory, "\"; ", rtrain::detail::expected_run_name));
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
    fs::remove_all(to); // left by a controller killed before it recorded it
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
