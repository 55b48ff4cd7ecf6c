// SPDX-License-Identifier: Apache-2.0
/// @file
/// The charts of tune.html: best score so far, scores by iteration, parallel coordinates, lineage.
#pragma once

#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/base/metric.hpp>
#include <rtrain/tune/record/svg.hpp>
#include <rtrain/tune/record/trial.hpp>
#include <rtrain/tune/record/trial_table.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune {

/// A trial on the page; its record outlives it.
struct ChartTrial {
    const TrialRecord* record;
    std::vector<std::pair<std::int64_t, double>> scores{}; ///< iteration, and the goal's metric
};

/// A line of pbt_global.txt.
struct ChartExploit {
    std::string trial{};
    std::string donor{};
    std::int64_t iteration = 0;
    std::int64_t donor_iteration = 0;
};

struct Charts {
    Goal goal{};
    std::vector<ChartTrial> trials{}; ///< in the order of their numbers
    std::vector<ChartExploit> exploits{};

    /// If there are more trials, the first ones are drawn.
    static constexpr std::size_t most_trials = 500;
    /// If there are more hyperparameters, the first ones are drawn.
    static constexpr std::size_t most_axes = 10;

    /// Each trial's last score by its number, and the best score so far. "" without scores.
    [[nodiscard]] std::string best_so_far() const {
        internal::Extent x;
        internal::Extent y;
        for (const ChartTrial& trial : trials) {
            if (const auto score = last(trial)) {
                x.add(static_cast<double>(trial.record->number));
                y.add(*score);
            }
        }
        if (y.empty()) {
            return "";
        }
        internal::Svg svg(x, y, "trial", goal.metric);
        std::vector<std::pair<double, double>> steps;
        std::optional<double> best;
        for (const ChartTrial& trial : trials) {
            const auto score = last(trial);
            if (!score) {
                continue;
            }
            const double at = svg.at_x(static_cast<double>(trial.record->number));
            if (best) {
                steps.emplace_back(at, svg.at_y(*best));
            }
            best = !best || is_better(*score, *best) ? *score : *best;
            steps.emplace_back(at, svg.at_y(*best));
            svg.dot(at, svg.at_y(*score), told(trial, *score), " opacity=\".45\"");
        }
        svg.path(steps, "curve", "best so far");
        return svg.element("Best " + goal.metric + " so far, trial by trial");
    }

    /// Each trial's scores by iteration; trials stopped by a scheduler end in a dot.
    [[nodiscard]] std::string rungs() const {
        internal::Extent x;
        internal::Extent y;
        for (const ChartTrial& trial : trials) {
            for (const auto& [iteration, score] : trial.scores) {
                x.add(static_cast<double>(iteration));
                y.add(score);
            }
        }
        if (y.empty() || x.low == x.high) {
            return "";
        }
        internal::Svg svg(x, y, "training_iteration", goal.metric);
        for (std::size_t at = 0; at < std::min(trials.size(), most_trials); ++at) {
            const ChartTrial& trial = trials[at];
            std::vector<std::pair<double, double>> points;
            for (const auto& [iteration, score] : trial.scores) {
                if (std::isfinite(score)) {
                    points.emplace_back(svg.at_x(static_cast<double>(iteration)), svg.at_y(score));
                }
            }
            if (points.empty()) {
                continue;
            }
            const std::string title = told(trial, trial.scores.back().second);
            svg.path(points, "curve", title, " opacity=\".45\"");
            if (trial.record->early) {
                svg.dot(points.back().first, points.back().second, title + ", stopped",
                        " style=\"fill:var(--bad)\"");
            }
        }
        return svg.element(goal.metric + " of each trial, by iteration");
    }

    /// An axis for each hyperparameter and one for the score; the better a trial, the stronger its
    /// line.
    [[nodiscard]] std::string parallel_coordinates() const {
        const std::vector<Axis> axes = all_axes();
        if (axes.size() < 2) {
            return "";
        }
        internal::Svg svg;
        const double gap =
            (internal::Svg::right - internal::Svg::left) / static_cast<double>(axes.size() - 1);
        const auto x_of = [&](std::size_t axis) {
            return internal::Svg::left + gap * static_cast<double>(axis);
        };
        for (std::size_t axis = 0; axis < axes.size(); ++axis) {
            svg.axis(x_of(axis));
            svg.text(x_of(axis), internal::Svg::top - 10, axes[axis].name, "middle");
            svg.text(x_of(axis), internal::Svg::bottom + 14, axes[axis].low(), "middle");
            svg.text(x_of(axis), internal::Svg::top, axes[axis].high(), "middle");
        }
        const Axis& scores = axes.back();
        for (std::size_t at = 0; at < std::min(trials.size(), most_trials); ++at) {
            std::vector<std::pair<double, double>> points;
            for (std::size_t axis = 0; axis < axes.size(); ++axis) {
                if (const auto place = axes[axis].place_of(trials[at])) {
                    points.emplace_back(
                        x_of(axis), internal::Svg::bottom -
                                        *place * (internal::Svg::bottom - internal::Svg::top - 6));
                }
            }
            const auto score = scores.place_of(trials[at]);
            if (score) {
                const double good = goal.mode == ScoreOrder::max ? *score : 1 - *score;
                svg.path(points, "curve", told(trials[at], *last(trials[at])),
                         " opacity=\"" + track::html::number(0.08 + 0.82 * good * good) + "\"");
            }
        }
        return svg.element("Hyperparameters and " + goal.metric + " of each trial");
    }

    /// A row for each trial; a line connects it to a trial whose state it has taken over.
    [[nodiscard]] std::string lineage() const {
        if (exploits.empty()) {
            return "";
        }
        internal::Extent x;
        internal::Extent y;
        std::map<std::string, double> rows;
        for (const ChartTrial& trial : trials) {
            rows[trial.record->id] = static_cast<double>(trial.record->number);
            x.add(0);
            x.add(static_cast<double>(trial.record->reports));
            y.add(static_cast<double>(trial.record->number));
        }
        internal::Svg svg(x, y, "training_iteration", "trial");
        for (const ChartTrial& trial : trials) {
            const double row = svg.at_y(static_cast<double>(trial.record->number));
            svg.path(
                {{svg.at_x(0), row}, {svg.at_x(static_cast<double>(trial.record->reports)), row}},
                "grid", trial.record->name);
        }
        for (const ChartExploit& exploit : exploits) {
            const auto from = rows.find(exploit.donor);
            const auto to = rows.find(exploit.trial);
            if (from == rows.end() || to == rows.end()) {
                continue;
            }
            const double to_x = svg.at_x(static_cast<double>(exploit.iteration));
            const std::string title = exploit.trial + " resumes from " + exploit.donor + " at " +
                                      std::to_string(exploit.donor_iteration);
            svg.path(
                {{svg.at_x(static_cast<double>(exploit.donor_iteration)), svg.at_y(from->second)},
                 {to_x, svg.at_y(to->second)}},
                "curve", title, " opacity=\".6\"");
            svg.dot(to_x, svg.at_y(to->second), title);
        }
        return svg.element("Trials that resumed from another trial");
    }

    /// The last finite score.
    [[nodiscard]] static std::optional<double> last(const ChartTrial& trial) {
        for (auto it = trial.scores.rbegin(); it != trial.scores.rend(); ++it) {
            if (std::isfinite(it->second)) {
                return it->second;
            }
        }
        return std::nullopt;
    }
    [[nodiscard]] bool is_better(double one, double other) const {
        return goal.mode == ScoreOrder::max ? one > other : one < other;
    }

private:
    /// Numbers are placed by value, or by logarithm if all are positive and far apart; texts in
    /// order.
    struct Axis {
        std::string name;
        bool is_score = false;
        bool is_logarithmic = false;
        internal::Extent extent{};
        std::vector<std::string> texts{};

        [[nodiscard]] std::optional<double> number_of(const ChartTrial& trial) const {
            if (is_score) {
                return last(trial);
            }
            const auto* const value = find(trial.record->config, name);
            return value != nullptr && value->is_number() ? json::number(*value) : std::nullopt;
        }
        [[nodiscard]] std::optional<std::string> text_of(const ChartTrial& trial) const {
            const auto* const value = find(trial.record->config, name);
            return value == nullptr ? std::nullopt : std::optional(internal::short_text(value));
        }
        void add(const ChartTrial& trial) {
            if (const auto number = number_of(trial)) {
                extent.add(*number);
            } else if (const auto text = is_score ? std::nullopt : text_of(trial);
                       text && std::find(texts.begin(), texts.end(), *text) == texts.end()) {
                texts.push_back(*text);
            }
        }
        [[nodiscard]] std::optional<double> place_of(const ChartTrial& trial) const {
            if (texts.empty()) {
                const auto number = number_of(trial);
                if (!number || !is_logarithmic) {
                    return number ? std::optional(extent.place(*number)) : std::nullopt;
                }
                return internal::Extent{std::log(extent.low), std::log(extent.high)}.place(
                    std::log(*number));
            }
            const auto text = text_of(trial);
            const auto found = text ? std::find(texts.begin(), texts.end(), *text) : texts.end();
            return found == texts.end()
                       ? std::nullopt
                       : std::optional(
                             internal::Extent{0, static_cast<double>(texts.size()) - 1}.place(
                                 static_cast<double>(found - texts.begin())));
        }
        [[nodiscard]] std::string low() const {
            return texts.empty() ? track::html::number(extent.low) : texts.front();
        }
        [[nodiscard]] std::string high() const {
            return texts.empty() ? track::html::number(extent.high) : texts.back();
        }
    };

    /// The hyperparameters in which trials differ, and the score.
    [[nodiscard]] std::vector<Axis> all_axes() const {
        std::vector<std::string> names;
        for (const ChartTrial& trial : trials) {
            internal::names_in(trial.record->config, "", names);
        }
        std::vector<Axis> axes;
        for (const std::string& name : names) {
            Axis axis{.name = name};
            for (const ChartTrial& trial : trials) {
                axis.add(trial);
            }
            axis.is_logarithmic = axis.extent.low > 0 && axis.extent.high > 50 * axis.extent.low;
            if (axes.size() < most_axes &&
                (axis.extent.low < axis.extent.high || axis.texts.size() > 1)) {
                axes.push_back(std::move(axis));
            }
        }
        Axis score{.name = goal.metric, .is_score = true};
        for (const ChartTrial& trial : trials) {
            score.add(trial);
        }
        if (score.extent.empty()) {
            return {};
        }
        axes.push_back(std::move(score));
        return axes;
    }

    [[nodiscard]] std::string told(const ChartTrial& trial, double score) const {
        return trial.record->name + ": " + goal.metric + " " + track::html::number(score);
    }
};

} // namespace rtrain::tune
