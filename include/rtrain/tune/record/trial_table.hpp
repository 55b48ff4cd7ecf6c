// SPDX-License-Identifier: Apache-2.0
/// @file
/// A terminal table of a search's trials.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/console/numbers.hpp>
#include <rtrain/console/table.hpp>
#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/base/metric.hpp>
#include <rtrain/tune/record/trial.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune {

namespace internal {

/// Appends the names of the configuration's values, "a/b", in order.
inline void names_in(const Config& config, const std::string& above,
                     std::vector<std::string>& names) {
    for (const auto& [key, value] : config) {
        const std::string name = above + std::string(key);
        if (const auto* const inner = value.if_object()) {
            names_in(*inner, name + "/", names);
        } else if (std::find(names.begin(), names.end(), name) == names.end()) {
            names.push_back(name);
        }
    }
}

/// The error of a failed trial in one line: its first line, and the code at the end of the last
/// one.
[[nodiscard]] inline std::string reason_of(const TrialRecord& trial) {
    const std::string& error = trial.error;
    std::string line = error.substr(0, error.find('\n'));
    const auto code = error.rfind("[RT-");
    if (code != std::string::npos && code > line.size()) {
        line += " " + error.substr(code);
    }
    return line;
}

[[nodiscard]] inline std::string short_text(const boost::json::value* value) {
    if (value == nullptr) {
        return "";
    }
    if (value->is_string()) {
        return std::string(value->get_string());
    }
    const auto number = json::number(*value);
    return number ? console::rounded(*number, 5) : json::serialize(*value);
}

/// Sorts by state, running ones first, then by score, best first; trials without a score are last.
[[nodiscard]] inline bool comes_before(const TrialRecord& one, const TrialRecord& other,
                                       const Goal& goal) {
    constexpr std::array<int, 5> order{2, 0, 1, 3, 4}; // of TrialState
    const int place = order[static_cast<std::size_t>(one.state)];
    const int its = order[static_cast<std::size_t>(other.state)];
    if (place != its) {
        return place < its;
    }
    const auto score = number_at(one.metrics, goal.metric);
    const auto its_score = number_at(other.metrics, goal.metric);
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    return rtrain::detail::is_worse(its_score.value_or(nan), score.value_or(nan), goal.mode);
}

} // namespace internal

/// "Trials: 12 (1 RUNNING, 11 TERMINATED)", then one row per trial: state, iteration, time, the
/// goal's metric, configuration. At most `rows`, running ones first, then the best; at most
/// `columns` wide. Below, the errors of at most `rows` failed trials.
[[nodiscard]] inline std::string trial_table(std::span<const TrialRecord> trials, const Goal& goal,
                                             int columns, std::size_t rows = 20) {
    std::vector<const TrialRecord*> order;
    std::array<int, 5> counts{};
    std::vector<std::string> names;
    for (const TrialRecord& trial : trials) {
        order.push_back(&trial);
        ++counts[static_cast<std::size_t>(trial.state)];
        internal::names_in(trial.config, "", names);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](const TrialRecord* one, const TrialRecord* other) {
                         return internal::comes_before(*one, *other, goal);
                     });
    std::string states;
    for (const TrialState state : {TrialState::pending, TrialState::running, TrialState::paused,
                                   TrialState::terminated, TrialState::errored}) {
        if (const int count = counts[static_cast<std::size_t>(state)]; count > 0) {
            states += (states.empty() ? "" : ", ") + std::to_string(count) + " " +
                      std::string(name_of(state));
        }
    }
    std::vector<console::Table::Column> titles{
        {"trial"}, {"state"}, {"iter", true}, {"time", true, 1}};
    if (!goal.metric.empty()) {
        titles.push_back({goal.metric, true});
    }
    for (const std::string& name : names) {
        titles.push_back({name, true, static_cast<int>(titles.size())});
    }
    console::Table table(std::move(titles));
    for (std::size_t at = 0; at < std::min(rows, order.size()); ++at) {
        const TrialRecord& trial = *order[at];
        std::vector<std::string> cells{
            trial.name.empty() ? trial.id : trial.name, std::string(name_of(trial.state)),
            std::to_string(trial.reports), console::duration(trial.time_s)};
        if (!goal.metric.empty()) {
            cells.push_back(internal::short_text(find(trial.metrics, goal.metric)));
        }
        for (const std::string& name : names) {
            cells.push_back(internal::short_text(find(trial.config, name)));
        }
        table.add(std::move(cells));
    }
    std::string text = rtrain::detail::concat("Trials: ", trials.size(),
                                              states.empty() ? "" : " (" + states + ")", "\n");
    if (!order.empty()) {
        text += table.text(columns);
    }
    if (order.size() > rows) {
        text += rtrain::detail::concat("  ", order.size() - rows, " more\n");
    }
    std::size_t told = 0;
    for (const TrialRecord& trial : trials) {
        if (trial.state == TrialState::errored && told++ < rows) {
            text += rtrain::detail::concat(trial.name.empty() ? trial.id : trial.name,
                                           " failed: ", internal::reason_of(trial), "\n");
        }
    }
    return text;
}

} // namespace rtrain::tune
