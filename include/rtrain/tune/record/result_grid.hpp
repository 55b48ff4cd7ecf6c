// SPDX-License-Identifier: Apache-2.0
/// @file
/// ResultGrid: the results of a search's trials, from `fit()` or from its directory, even if that
/// was moved.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/config/score_order.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/record/trial.hpp>

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain {

/// The result of one trial.
struct TrialResult : Result {
    std::string trial_id;                               ///< unique in its search
    std::string name;                                   ///< for people, and in its directory's name
    Config config;                                      ///< suggested by the search
    tune::TrialState state = tune::TrialState::pending; ///< when the search was read
};

/// One row for each trial: its metrics, "trial_id" and its configuration as "config/a/b".
struct TrialTable {
    std::vector<std::string> columns;                            ///< in order of first appearance
    std::vector<std::map<std::string, boost::json::value>> rows; ///< missing values are absent

    /// CSV with a header, as pandas.DataFrame.to_csv(index=False) writes it.
    [[nodiscard]] std::string to_csv() const;
};

/// The results of a search, one per trial, in the order in which trials were created.
class ResultGrid {
public:
    ResultGrid() = default;
    /// `trials` are stored below `experiment`; their reports are read from there. `goal`: default
    /// metric and mode of get_best_result().
    ResultGrid(const std::filesystem::path& experiment,
               const std::vector<tune::TrialRecord>& trials, tune::Goal goal);

    /// Reads the directory of a search. Throws StorageError [RT-U80] when it is not one, [RT-U85]
    /// when its tuner_state.json is damaged.
    [[nodiscard]] static ResultGrid from_path(const std::filesystem::path& experiment);

    [[nodiscard]] std::size_t size() const noexcept { return results_.size(); }
    [[nodiscard]] const TrialResult& operator[](std::size_t number) const {
        return results_.at(number);
    }
    [[nodiscard]] auto begin() const noexcept { return results_.begin(); }
    [[nodiscard]] auto end() const noexcept { return results_.end(); }

    /// The trial with the best value of a metric. `scope`: "last", the value of its last report;
    /// "avg", "last-5-avg", "last-10-avg", the mean of all, the last 5, the last 10; "all", the
    /// best of all. NaN and infinities do not count; if `filter_nan_and_inf` is false, infinities
    /// do. Throws ConfigError: [RT-U81] without a metric or mode if there is more than one trial,
    /// [RT-U82] if no trial has the metric, [RT-U83] for an unknown scope. The message of RT-U82
    /// lists the reported metrics.
    [[nodiscard]] const TrialResult&
    get_best_result(std::optional<std::string> metric = std::nullopt,
                    std::optional<ScoreOrder> mode = std::nullopt, std::string_view scope = "last",
                    bool filter_nan_and_inf = true) const;

    /// The last report of each trial; with a metric and a mode, its best one. Throws ConfigError
    /// [RT-U81] for only one of the two.
    [[nodiscard]] TrialTable
    get_dataframe(std::optional<std::string> filter_metric = std::nullopt,
                  std::optional<ScoreOrder> filter_mode = std::nullopt) const;

    /// Errors of the failed trials.
    [[nodiscard]] std::vector<Error> errors() const;
    /// Number of failed trials.
    [[nodiscard]] std::size_t num_errors() const noexcept;
    /// Number of trials that have ended otherwise.
    [[nodiscard]] std::size_t num_terminated() const noexcept;
    /// The search's directory.
    [[nodiscard]] const std::filesystem::path& experiment_path() const noexcept {
        return experiment_;
    }

private:
    std::filesystem::path experiment_;
    tune::Goal goal_;
    std::vector<TrialResult> results_;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/record/result_grid_definitions.hpp>
#endif
