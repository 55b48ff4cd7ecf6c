// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks the conditions in RunConfig::stop, and names them in messages.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/config/stop.hpp>

#include <cmath>
#include <string>
#include <variant>

namespace rtrain::detail {

/// Returns the name used in messages.
[[nodiscard]] inline std::string name_of(const stop::Condition& condition) {
    static constexpr const char* names[] = {"stop::MaxIterations", "stop::MaxTime",
                                            "stop::Threshold",     "stop::EarlyStopping",
                                            "stop::TrialPlateau",  "a function of RunConfig::stop"};
    static_assert(std::size(names) == std::variant_size_v<stop::Condition::Kind>);
    return names[condition.kind().index()];
}

/// Returns why a condition is invalid; empty if it is valid.
struct WrongWith {
    std::string operator()(const stop::MaxIterations& it) const {
        return it.count < 1 ? concat("count is ", it.count, "; expected at least 1") : "";
    }
    std::string operator()(const stop::MaxTime& it) const {
        return !(it.seconds > 0) || std::isinf(it.seconds)
                   ? concat("seconds is ", it.seconds, "; expected a number above 0")
                   : "";
    }
    std::string operator()(const stop::Threshold& it) const {
        return it.metric.empty()      ? no_metric
               : std::isnan(it.bound) ? "bound is NaN; expected a number"
                                      : "";
    }
    std::string operator()(const stop::EarlyStopping& it) const {
        return it.metric.empty() ? no_metric
               : it.patience < 1 ? concat("patience is ", it.patience, "; expected at least 1")
               : !(it.min_delta >= 0) || std::isinf(it.min_delta)
                   ? concat("min_delta is ", it.min_delta, "; expected a number of 0 or more")
                   : "";
    }
    std::string operator()(const stop::TrialPlateau& it) const {
        if (it.metric.empty()) {
            return no_metric;
        }
        if (!(it.std > 0)) {
            return concat("std is ", it.std, "; expected more than 0");
        }
        if (it.num_results < 1) {
            return concat("num_results is ", it.num_results, "; expected at least 1");
        }
        if (it.grace_period < 0) {
            return concat("grace_period is ", it.grace_period, "; expected 0 or more");
        }
        if (it.metric_threshold && std::isnan(*it.metric_threshold)) {
            return "metric_threshold is NaN; expected a number, or unset";
        }
        return it.metric_threshold && !it.mode
                   ? "metric_threshold is set, but mode is not; expected \"min\" or \"max\""
                   : "";
    }
    std::string operator()(const stop::Function& it) const {
        return it ? "" : "the function is empty; expected a callable";
    }

private:
    static constexpr const char* no_metric = "metric is empty; expected the name of a metric";
};

/// Throws ConfigError [RT-C31].
inline void check_stop(const stop::Conditions& conditions) {
    for (const stop::Condition& condition : conditions) {
        if (const std::string why = std::visit(WrongWith(), condition.kind()); !why.empty()) {
            throw ConfigError("RT-C31", concat(name_of(condition), ": ", why));
        }
    }
}

} // namespace rtrain::detail
