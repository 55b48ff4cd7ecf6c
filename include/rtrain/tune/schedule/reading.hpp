// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads reports, and the saved states of schedulers. Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/base/metric.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::tune::internal {

/// Time and score of a report.
struct Point {
    double time = 0;
    double score = 0; ///< larger is better: negated where the mode is "min"
};

/// Reads a scheduler's time and score from reports.
class Reading {
public:
    Reading(const char* scheduler, std::string time_attr, std::optional<Goal> goal)
        : scheduler_(scheduler), time_attr_(std::move(time_attr)), goal_(std::move(goal)) {}

    /// `goal`: the search's; the goal in the scheduler's options takes precedence. Throws
    /// ConfigError [RT-U62].
    void begin(const Goal& goal) {
        if (!goal_) {
            goal_ = goal;
        }
        if (goal_->metric.empty()) {
            throw ConfigError("RT-U62", rtrain::detail::concat(
                                            scheduler_, " needs a metric and a mode; set them in "
                                                        "the search's or the scheduler's options"));
        }
    }

    /// None when the report lacks one of the two. The first time is a warning, unless the search's
    /// own metric is missing, about which the search warns. `require`: throws ConfigError [RT-U64].
    [[nodiscard]] std::optional<Point> operator()(const TrialReport& report, bool require = false) {
        const auto time = time_of(report);
        const auto value = number_at(report.metrics, goal_->metric);
        if (time && value) {
            return Point{*time, goal_->mode == ScoreOrder::max ? *value : -*value};
        }
        if (require) {
            throw missing(report);
        }
        if ((!time || has_own_goal_) && !std::exchange(warned_, true)) {
            console::warn("%s; such reports are skipped (logged once)", missing(report).what());
        }
        return std::nullopt;
    }

    [[nodiscard]] const char* scheduler() const noexcept { return scheduler_; }

    /// Throws ConfigError [RT-U63] unless `holds`, a condition on an option of the scheduler.
    static void expect(bool holds, const char* scheduler, std::string_view what) {
        if (!holds) {
            throw ConfigError("RT-U63", rtrain::detail::concat(scheduler, ": ", what));
        }
    }

private:
    /// Lists the report's metrics.
    [[nodiscard]] ConfigError missing(const TrialReport& report) const {
        return {"RT-U64",
                rtrain::detail::concat("trial ", report.trial, " has reported no number \"",
                                       time_of(report) ? goal_->metric : time_attr_, "\", which ",
                                       scheduler_, " requires; it has reported ",
                                       names_in_report(report.metrics))};
    }
    [[nodiscard]] std::optional<double> time_of(const TrialReport& report) const {
        if (const auto time = number_at(report.metrics, time_attr_)) {
            return time;
        }
        if (time_attr_ == "training_iteration") {
            return static_cast<double>(report.iteration);
        }
        return time_attr_ == "time_total_s" ? std::optional(report.time_s) : std::nullopt;
    }

    const char* scheduler_;
    std::string time_attr_;
    std::optional<Goal> goal_;
    bool has_own_goal_ = goal_.has_value();
    bool warned_ = false;
};

/// A number that a scheduler has saved with json::finite().
[[nodiscard]] inline double saved_number(const boost::json::value& value) {
    return json::number(value).value_or(std::numeric_limits<double>::quiet_NaN());
}

/// Loads the state saved by `name`. Throws ConfigError [RT-U65] for a different or damaged state.
template <class Take>
void load_state(const char* name, const boost::json::object& state, Take&& take) {
    try {
        if (state.at("type").as_string() != name) {
            throw std::invalid_argument(
                rtrain::detail::concat("the state was saved by ", state.at("type").as_string()));
        }
        take();
    } catch (const std::exception& error) {
        throw ConfigError("RT-U65", rtrain::detail::concat("the state was not saved by ", name,
                                                           " with these options: ", error.what()));
    }
}

} // namespace rtrain::tune::internal
