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

    /// None when the report lacks one of the two.
    [[nodiscard]] std::optional<Point> operator()(const TrialReport& report) const {
        const auto time = time_of(report);
        const auto value = number_at(report.metrics, goal_->metric);
        if (!time && !std::exchange(has_warned_, true)) {
            rtrain::console::warn("%s", lacks(report, time_attr_).c_str());
        }
        if (!time || !value) {
            return std::nullopt;
        }
        return Point{*time, goal_->mode == ScoreOrder::max ? *value : -*value};
    }

    /// Throws ConfigError [RT-U64], which lists what the report has, when it lacks one of the two.
    [[nodiscard]] Point require(const TrialReport& report) const {
        if (const auto point = (*this)(report)) {
            return *point;
        }
        throw ConfigError("RT-U64", lacks(report, time_of(report) ? goal_->metric : time_attr_));
    }

    [[nodiscard]] const char* scheduler() const noexcept { return scheduler_; }

    /// Throws ConfigError [RT-U63] unless an option of the scheduler `holds`.
    static void expect(bool holds, const char* scheduler, std::string_view what) {
        if (!holds) {
            throw ConfigError("RT-U63", rtrain::detail::concat(scheduler, ": ", what));
        }
    }

private:
    [[nodiscard]] std::string lacks(const TrialReport& report, const std::string& missing) const {
        std::string names;
        for (const auto& item : report.metrics) {
            names += (names.empty() ? "" : ", ") + std::string(item.key());
        }
        return rtrain::detail::concat("trial ", report.trial, " has reported no number \"", missing,
                                      "\", which ", scheduler_, " judges by; it has reported ",
                                      names.empty() ? "nothing" : names);
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
    mutable bool has_warned_ = false;
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
