// SPDX-License-Identifier: Apache-2.0
/// @file
/// What schedulers read of reports, and of what they have saved.
/// Cost tier 1: std and Boost.JSON.
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

/// When a trial has reported, and how good that is.
struct Point {
    double time = 0;
    double score = 0; ///< the more the better: negated where the mode is "min"
};

/// Reads the time and the score of a scheduler out of reports.
class Reading {
public:
    Reading(const char* scheduler, std::string time_attr, std::optional<Goal> goal)
        : scheduler_(scheduler), time_attr_(std::move(time_attr)), goal_(std::move(goal)) {}

    /// `goal`: the search's; one in the scheduler's options comes first. Throws ConfigError
    /// [RT-U62].
    void begin(const Goal& goal) {
        if (!goal_) {
            goal_ = goal;
        }
        if (goal_->metric.empty()) {
            throw ConfigError("RT-U62", rtrain::detail::concat(
                                            scheduler_, " needs a metric and a mode: set them in "
                                                        "the search's options or in its own"));
        }
    }

    /// None when the report lacks one of the two. The first time is a warning, unless it lacks the
    /// search's own metric, of which the search warns. `require`: throws ConfigError [RT-U64].
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

    /// Throws ConfigError [RT-U63] unless an option of the scheduler `holds`.
    static void expect(bool holds, const char* scheduler, std::string_view what) {
        if (!holds) {
            throw ConfigError("RT-U63", rtrain::detail::concat(scheduler, ": ", what));
        }
    }

private:
    /// Lists what the report has.
    [[nodiscard]] ConfigError missing(const TrialReport& report) const {
        return {"RT-U64",
                rtrain::detail::concat("trial ", report.trial, " has reported no number \"",
                                       time_of(report) ? goal_->metric : time_attr_, "\", which ",
                                       scheduler_, " judges by; it has reported ",
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

/// A number that a scheduler has saved, through json::finite().
[[nodiscard]] inline double saved_number(const boost::json::value& value) {
    return json::number(value).value_or(std::numeric_limits<double>::quiet_NaN());
}

/// Takes up what `name` has saved. Throws ConfigError [RT-U65] when it is none of that.
template <class Take>
void load_state(const char* name, const boost::json::object& state, Take&& take) {
    try {
        if (state.at("type").as_string() != name) {
            throw std::invalid_argument(
                rtrain::detail::concat("it is of ", state.at("type").as_string()));
        }
        take();
    } catch (const std::exception& error) {
        throw ConfigError("RT-U65",
                          rtrain::detail::concat("this is no state that ", name,
                                                 " with these options has saved: ", error.what()));
    }
}

} // namespace rtrain::tune::internal
