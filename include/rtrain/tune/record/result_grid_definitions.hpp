// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door result_grid.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/tune/base/metric.hpp>
#include <rtrain/tune/record/result_grid.hpp>
#include <rtrain/tune/record/tuner_state.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

namespace rtrain {

namespace tune::internal {

using Flat = std::function<void(const std::string&, const boost::json::value&)>;

/// Passes each value that is not an object to `take`, named "a/b".
inline void flatten(const std::string& name, const boost::json::value& value, const Flat& take) {
    const auto* const object = value.if_object();
    if (object == nullptr) {
        take(name, value);
        return;
    }
    for (const auto& [key, inner] : *object) {
        flatten(name.empty() ? std::string(key) : name + "/" + std::string(key), inner, take);
    }
}

/// The text of a cell in pandas' CSV.
[[nodiscard]] inline std::string cell_of(const boost::json::value& value) {
    std::string text = value.is_string() ? std::string(value.get_string())
                       : value.is_null() ? std::string()
                       : value.is_bool() ? std::string(value.get_bool() ? "True" : "False")
                                         : json::serialize(value);
    if (text.find_first_of(",\"\r\n") == std::string::npos) {
        return text;
    }
    std::string quoted = "\"";
    for (const char letter : text) {
        quoted += letter == '"' ? "\"\"" : std::string(1, letter);
    }
    return quoted + '"';
}

[[nodiscard]] inline TrialResult read_trial(const std::filesystem::path& experiment,
                                            const TrialRecord& trial) {
    TrialResult result;
    const auto directory = experiment / trial.directory;
    if (std::filesystem::exists(directory / track::results_file)) {
        static_cast<Result&>(result) = Result::from_path(directory);
    }
    result.path = directory;
    if (result.metrics_history.empty() && trial.reports > 0) {
        result.metrics = trial.metrics;
        result.metrics_history = {trial.metrics};
    }
    if (trial.state == TrialState::errored && !result.error) {
        result.error = Error("RT-U88", trial.error);
    }
    result.trial_id = trial.id;
    result.name = trial.name;
    result.config = trial.config;
    result.state = trial.state;
    return result;
}

/// Which reports of a trial count: the last one, the average of all or of some, or the best one.
enum class Scope : unsigned char { last, avg, last_5_avg, last_10_avg, all };
inline constexpr auto scope_names =
    rtrain::detail::name_table<Scope>({{Scope::last, "last"},
                                       {Scope::avg, "avg"},
                                       {Scope::last_5_avg, "last-5-avg"},
                                       {Scope::last_10_avg, "last-10-avg"},
                                       {Scope::all, "all"}});

/// The trial's value of a metric in a scope; none when it never reported the metric.
[[nodiscard]] inline std::optional<double> score_of(const Result& result, const std::string& metric,
                                                    ScoreOrder mode, Scope scope) {
    std::vector<double> values;
    for (const Config& report : result.metrics_history) {
        if (const auto value = number_at(report, metric)) {
            values.push_back(*value);
        }
    }
    if (values.empty()) {
        return std::nullopt;
    }
    if (scope == Scope::last) {
        return values.back();
    }
    if (scope == Scope::all) {
        return *std::max_element(values.begin(), values.end(), [&](double one, double other) {
            return detail::is_worse(one, other, mode);
        });
    }
    const std::size_t most = scope == Scope::avg          ? values.size()
                             : scope == Scope::last_5_avg ? 5
                                                          : 10;
    const std::size_t count = std::min(most, values.size());
    double sum = 0;
    for (std::size_t at = values.size() - count; at < values.size(); ++at) {
        sum += values[at];
    }
    return sum / static_cast<double>(count);
}

} // namespace tune::internal

RTRAIN_DOOR std::string TrialTable::to_csv() const {
    std::string text;
    for (const std::string& column : columns) {
        text += text.empty() ? "" : ",";
        text += tune::internal::cell_of(boost::json::string(column));
    }
    text += '\n';
    for (const auto& row : rows) {
        std::string line;
        for (const std::string& column : columns) {
            const auto found = row.find(column);
            line += &column == columns.data() ? "" : ",";
            line += found == row.end() ? "" : tune::internal::cell_of(found->second);
        }
        text += line + '\n';
    }
    return text;
}

RTRAIN_DOOR ResultGrid::ResultGrid(const std::filesystem::path& experiment,
                                   const std::vector<tune::TrialRecord>& trials, tune::Goal goal)
    : experiment_(std::filesystem::absolute(experiment).lexically_normal()),
      goal_(std::move(goal)) {
    results_.reserve(trials.size());
    for (const tune::TrialRecord& trial : trials) {
        results_.push_back(tune::internal::read_trial(experiment_, trial));
    }
}

RTRAIN_DOOR ResultGrid ResultGrid::from_path(const std::filesystem::path& experiment) {
    const auto state = tune::read_tuner_state(experiment);
    return {experiment, state.trials, state.goal};
}

RTRAIN_DOOR const TrialResult& ResultGrid::get_best_result(std::optional<std::string> metric,
                                                           std::optional<ScoreOrder> mode,
                                                           std::string_view scope,
                                                           bool filter_nan_and_inf) const {
    const auto reports = tune::internal::scope_names.parse(scope);
    if (!reports) {
        throw ConfigError("RT-U83", detail::concat("\"", scope,
                                                   "\" is not a scope; use \"last\", \"avg\", "
                                                   "\"last-5-avg\", \"last-10-avg\" or \"all\""));
    }
    if (!goal_.metric.empty()) {
        mode = mode ? mode : goal_.mode;
        metric = metric ? metric : goal_.metric;
    }
    if (!metric || !mode) {
        if (results_.size() == 1) {
            return results_.front();
        }
        throw ConfigError("RT-U81",
                          detail::concat("there are ", results_.size(),
                                         " trials, but no metric and mode to compare them; give "
                                         "both, here or in the search's options"));
    }
    const TrialResult* best = nullptr;
    double best_score = 0;
    std::set<std::string> names;
    for (const TrialResult& result : results_) {
        for (const auto& item : result.metrics) {
            names.emplace(item.key());
        }
        const auto score = tune::internal::score_of(result, *metric, *mode, *reports);
        if (!score || std::isnan(*score) || (filter_nan_and_inf && std::isinf(*score))) {
            continue;
        }
        const bool is_better =
            best == nullptr || (result.error.has_value() == best->error.has_value()
                                    ? detail::is_worse(best_score, *score, *mode)
                                    : best->error.has_value());
        if (is_better) {
            best = &result;
            best_score = *score;
        }
    }
    if (best == nullptr) {
        std::string list;
        for (const std::string& name : names) {
            list += (list.empty() ? "" : ", ") + name;
        }
        throw ConfigError("RT-U82", detail::concat("no best trial: none of ", results_.size(),
                                                   " has reported a finite number \"", *metric,
                                                   "\"; they have reported ",
                                                   list.empty() ? "nothing" : list));
    }
    return *best;
}

RTRAIN_DOOR TrialTable ResultGrid::get_dataframe(std::optional<std::string> filter_metric,
                                                 std::optional<ScoreOrder> filter_mode) const {
    if (filter_metric.has_value() != filter_mode.has_value()) {
        throw ConfigError("RT-U81",
                          "a filter needs both a metric and a mode; give both, or neither");
    }
    TrialTable table;
    std::set<std::string> known;
    for (const TrialResult& result : results_) {
        auto& row = table.rows.emplace_back();
        const auto take = [&](const std::string& name, const boost::json::value& value) {
            row[name] = value;
            if (known.insert(name).second) {
                table.columns.push_back(name);
            }
        };
        const Config* shown = &result.metrics;
        std::optional<double> best;
        for (const Config& report : result.metrics_history) {
            const auto value =
                filter_metric ? tune::number_at(report, *filter_metric) : std::optional<double>();
            if (value && (!best || detail::is_worse(*best, *value, *filter_mode))) {
                best = value;
                shown = &report;
            }
        }
        Config metrics = *shown;
        metrics.erase("config");
        const auto take_each = [&](std::string name, const boost::json::value& value) {
            while (row.contains(name)) { // "a/b" next to `b` in `a`
                name += "_2";
            }
            take(name, value);
        };
        tune::internal::flatten("", metrics, take_each);
        take("trial_id", boost::json::string(result.trial_id));
        tune::internal::flatten("config", result.config, take_each);
    }
    return table;
}

RTRAIN_DOOR std::vector<Error> ResultGrid::errors() const {
    std::vector<Error> all;
    for (const TrialResult& result : results_) {
        if (result.error) {
            all.push_back(*result.error);
        }
    }
    return all;
}

RTRAIN_DOOR std::size_t ResultGrid::num_errors() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(begin(), end(), [](const TrialResult& it) { return it.error.has_value(); }));
}

RTRAIN_DOOR std::size_t ResultGrid::num_terminated() const noexcept {
    return static_cast<std::size_t>(std::count_if(begin(), end(), [](const TrialResult& it) {
        return it.state == tune::TrialState::terminated;
    }));
}

} // namespace rtrain
