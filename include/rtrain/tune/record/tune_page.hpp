// SPDX-License-Identifier: Apache-2.0
/// @file
/// tune.html: a search on one self-contained HTML page, with charts as inline SVG.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/track/page/html.hpp>
#include <rtrain/track/page/page_assets.hpp>
#include <rtrain/tune/record/policy_log.hpp>
#include <rtrain/tune/record/trial_table.hpp>
#include <rtrain/tune/record/tune_charts.hpp>
#include <rtrain/tune/record/tuner_state.hpp>
#include <rtrain/version.hpp>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::tune {

inline constexpr const char* tune_page_file = "tune.html";

namespace internal {

/// Reads the trials' result.json and pbt_global.txt. Unreadable lines are skipped. `state` outlives
/// the result.
[[nodiscard]] inline Charts read_charts(const std::filesystem::path& experiment,
                                        const TunerState& state) {
    Charts charts{.goal = state.goal};
    charts.trials.reserve(state.trials.size());
    for (const TrialRecord& trial : state.trials) {
        ChartTrial shown{.record = &trial};
        const auto file = experiment / trial.directory / track::results_file;
        for (const Config& report : track::read_results(file, 0).reports) {
            if (const auto score = number_at(report, state.goal.metric)) {
                shown.scores.emplace_back(track::number_of(report), *score);
            }
        }
        charts.trials.push_back(std::move(shown));
    }
    const auto log = experiment / pbt_global_file;
    const std::string text = std::filesystem::exists(log) ? storage::read_file(log) : "";
    for (std::string_view rest = text; rest.find('\n') != std::string_view::npos;
         rest.remove_prefix(rest.find('\n') + 1)) {
        try {
            const auto row = json::parse(rest.substr(0, rest.find('\n'))).as_array();
            charts.exploits.push_back(
                {std::string(row.at(0).as_string()), std::string(row.at(1).as_string()),
                 row.at(2).to_number<std::int64_t>(), row.at(3).to_number<std::int64_t>()});
        } catch (const std::exception&) { // a line cut by a crash
        }
    }
    return charts;
}

[[nodiscard]] inline std::string chart_section(const char* title, const std::string& chart) {
    return chart.empty() ? ""
                         : std::string("<section><h2>") + title + "</h2><div class=\"card\">" +
                               chart + "</div></section>\n";
}

[[nodiscard]] inline std::string trial_rows(const Charts& charts) {
    std::vector<const TrialRecord*> order;
    std::vector<std::string> names;
    for (const ChartTrial& trial : charts.trials) {
        order.push_back(trial.record);
        names_in(trial.record->config, "", names);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](const TrialRecord* one, const TrialRecord* other) {
                         return comes_before(*one, *other, charts.goal);
                     });
    order.resize(std::min(order.size(), Charts::most_trials));
    namespace html = track::html;
    std::string text = "<div class=\"wide\"><table><thead><tr><th scope=\"col\">trial</th><th "
                       "scope=\"col\">state</th><th scope=\"col\" class=\"number\">iteration</th>";
    const auto column = [&](const std::string& name) {
        text += "<th scope=\"col\" class=\"number\">" + html::escaped(name) + "</th>";
    };
    column(charts.goal.metric);
    std::for_each(names.begin(), names.end(), column);
    text += "</tr></thead>\n<tbody>";
    for (const TrialRecord* trial : order) {
        std::string cells =
            html::cell(std::string(name_of(trial->state)) + (trial->early ? ", stopped" : "") +
                       (trial->error.empty() ? "" : ": " + html::escaped(trial->error))) +
            html::number_cell(std::to_string(trial->reports)) +
            html::number_cell(html::escaped(short_text(find(trial->metrics, charts.goal.metric))));
        for (const std::string& name : names) {
            cells += html::number_cell(html::escaped(short_text(find(trial->config, name))));
        }
        text += html::row(html::escaped(trial->name), cells);
    }
    return text + "</tbody></table></div>\n";
}

} // namespace internal

/// The page of the search in `experiment`; `name` is its title.
[[nodiscard]] inline std::string tune_page(const std::filesystem::path& experiment,
                                           const TunerState& state, const std::string& name) {
    namespace html = track::html;
    const Charts charts = internal::read_charts(experiment, state);
    const TrialRecord* best = nullptr;
    double best_score = 0;
    for (const ChartTrial& trial : charts.trials) {
        const auto score = Charts::last(trial);
        if (score && (best == nullptr || charts.is_better(*score, best_score))) {
            best = trial.record;
            best_score = *score;
        }
    }
    const auto fact = [](const char* what, const std::string& value) {
        return std::string("<div><dt>") + what + "</dt><dd>" + value + "</dd></div>\n";
    };
    std::string facts = fact("Trials", std::to_string(charts.trials.size()));
    if (best != nullptr) {
        facts += fact("Best", html::escaped(best->name)) +
                 fact(html::escaped(charts.goal.metric).c_str(), html::number(best_score)) +
                 fact("with", html::of(boost::json::value(best->config)));
    }
    return html::filled(
        track::search_html,
        {{"name", html::escaped(name)},
         {"style", track::page_style},
         {"facts", facts},
         {"charts", internal::chart_section("Best so far", charts.best_so_far()) +
                        internal::chart_section("Rungs", charts.rungs()) +
                        internal::chart_section("Hyperparameters", charts.parallel_coordinates()) +
                        internal::chart_section("Lineage", charts.lineage())},
         {"trials", internal::trial_rows(charts)},
         {"version", RTRAIN_VERSION}});
}

/// Replaces tune.html.
inline void write_tune_page(const std::filesystem::path& experiment, const TunerState& state,
                            const std::string& name) {
    storage::replace_file(experiment / tune_page_file, tune_page(experiment, state, name));
}

} // namespace rtrain::tune
