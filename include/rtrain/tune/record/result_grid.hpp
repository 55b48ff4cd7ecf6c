// SPDX-License-Identifier: Apache-2.0
/// @file
/// ResultGrid: what the trials of a search have left, from `fit()` or from its directory, also
/// after that was moved.
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

/// What one trial has left.
struct TrialResult : Result {
    std::string trial_id;                               ///< unique in its search
    std::string name;                                   ///< for people, and of its directory
    Config config;                                      ///< that the search has given it
    tune::TrialState state = tune::TrialState::pending; ///< when the search was read
};

/// One row for each trial: its metrics, "trial_id" and its configuration as "config/a/b".
struct TrialTable {
    std::vector<std::string> columns; ///< in the order in which they have come
    std::vector<std::map<std::string, boost::json::value>> rows; ///< what a trial lacks is missing

    /// With a header, as pandas.DataFrame.to_csv(index=False) writes it.
    [[nodiscard]] std::string to_csv() const;
};

/// What a search has left, trial by trial, in the order in which they were made.
class ResultGrid {
public:
    ResultGrid() = default;
    /// `trials` lie below `experiment`; what they have reported is read from there. `goal`: what
    /// get_best_result() takes when it is given none.
    ResultGrid(const std::filesystem::path& experiment,
               const std::vector<tune::TrialRecord>& trials, tune::Goal goal);

    /// Reads the directory of a search. Throws StorageError [RT-U80] when it is none, [RT-U85] when
    /// its tuner_state.json is damaged.
    [[nodiscard]] static ResultGrid from_path(const std::filesystem::path& experiment);

    [[nodiscard]] std::size_t size() const noexcept { return results_.size(); }
    [[nodiscard]] const TrialResult& operator[](std::size_t number) const {
        return results_.at(number);
    }
    [[nodiscard]] auto begin() const noexcept { return results_.begin(); }
    [[nodiscard]] auto end() const noexcept { return results_.end(); }

    /// The trial with the best value of a metric. `scope`: "last", the one of its last report;
    /// "avg", "last-5-avg", "last-10-avg", the mean of all, the last 5, the last 10; "all", the
    /// best of all. NaN and infinities do not count, unless `filter_nan_and_inf` is false; then
    /// infinities do. Throws ConfigError [RT-U81] without a metric or mode where there is more than
    /// one trial, [RT-U82] when no trial has the metric, which names those that were reported,
    /// [RT-U83] for another scope.
    [[nodiscard]] const TrialResult&
    get_best_result(std::optional<std::string> metric = std::nullopt,
                    std::optional<ScoreOrder> mode = std::nullopt, std::string_view scope = "last",
                    bool filter_nan_and_inf = true) const;

    /// The last report of each trial; with a metric and a mode, the one in which it was best.
    /// Throws ConfigError [RT-U81] for one without the other.
    [[nodiscard]] TrialTable
    get_dataframe(std::optional<std::string> filter_metric = std::nullopt,
                  std::optional<ScoreOrder> filter_mode = std::nullopt) const;

    /// Of the trials that have failed.
    [[nodiscard]] std::vector<Error> errors() const;
    /// How many have failed.
    [[nodiscard]] std::size_t num_errors() const noexcept;
    /// How many have ended otherwise.
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
