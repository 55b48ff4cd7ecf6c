// SPDX-License-Identifier: Apache-2.0
/// @file
/// Visits the metrics of a report, for trackers.
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/journal/run_log.hpp>

#include <boost/json/value.hpp>

#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <unordered_set>

namespace rtrain::track {

/// Calls `visit(name, value)` for a value, or recursively for the values in an object: "a/b" is `b`
/// in `a`.
template <class Visit>
void visit_leaves(const std::string& name, const boost::json::value& value, Visit&& visit) {
    if (const auto* const object = value.if_object()) {
        for (const auto& item : *object) {
            visit_leaves(name + '/' + std::string(item.key()), item.value(), visit);
        }
    } else {
        visit(name, value);
    }
}

/// Visits each value of `object` whose name satisfies `is_wanted`, each name once: {"a": {"b": 1},
/// "a/b": 2} has "a/b", which is 2, and "a/b_2", which is 1.
template <class IsWanted, class Visit>
void visit_leaves_if(const Config& object, IsWanted&& is_wanted, Visit&& visit) {
    std::unordered_set<std::string> names;
    for (const auto& item : object) {
        if (!item.value().is_object()) {
            names.emplace(item.key());
        }
    }
    for (const auto& item : object) {
        if (!is_wanted(std::string_view(item.key()))) {
            continue;
        }
        if (!item.value().is_object()) {
            visit(std::string(item.key()), item.value());
            continue;
        }
        visit_leaves(std::string(item.key()), item.value(),
                     [&](std::string name, const boost::json::value& value) {
                         while (!names.insert(name).second) {
                             name += "_2";
                         }
                         visit(name, value);
                     });
    }
}

/// Visits all values of a configuration.
template <class Visit>
void visit_settings(const Config& config, Visit&& visit) {
    visit_leaves_if(
        config, [](std::string_view) { return true; }, visit);
}

/// Visits the metrics of a line, without the fields that rtrain fills in.
template <class Visit>
void visit_metrics(const Line& line, Visit&& visit) {
    const auto is_metric = [&](std::string_view name) {
        return !RunLog::fills_in(name) && !(line.is_step && name == step_field);
    };
    visit_leaves_if(line.values, is_metric, visit);
}

/// Calls `visit(name, number)` for each number in a line; true and false are 1 and 0. The number
/// may be NaN or infinite.
template <class Visit>
void visit_numbers(const Line& line, Visit&& visit) {
    visit_metrics(line, [&](const std::string& name, const boost::json::value& metric) {
        if (metric.is_bool()) {
            visit(name, metric.get_bool() ? 1.0 : 0.0);
        } else if (const auto number = json::number(metric)) {
            visit(name, *number);
        }
    });
}

/// A suffix for names that a service does not accept unchanged: two metrics with the same changed
/// name would become one curve.
[[nodiscard]] inline std::string checksum_of(std::string_view name) {
    char sum[16] = {};
    std::snprintf(sum, sizeof sum, "-%08x", static_cast<unsigned>(checkpoint::crc32c(name)));
    return sum;
}

/// A number as a JSON value, with NaN and infinities as strings, as in protocol buffers and Python.
[[nodiscard]] inline boost::json::value number_or_name(double number) {
    if (std::isfinite(number)) {
        return number;
    }
    return std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
}

} // namespace rtrain::track
