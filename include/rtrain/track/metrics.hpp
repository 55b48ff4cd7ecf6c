// SPDX-License-Identifier: Apache-2.0
/// @file
/// The metrics of a report, one by one, for trackers.
#pragma once

#include <rtrain/config/tracker.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/journal/run_log.hpp>

#include <boost/json/value.hpp>

#include <string>
#include <string_view>

namespace rtrain::track {

/// Calls `visit(name, value)` for a value, or for each in it when it is an object: "a/b" is `b` in
/// `a`.
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

/// The same for each value of `object` whose name `is_wanted`.
template <class IsWanted, class Visit>
void visit_leaves_if(const Config& object, IsWanted&& is_wanted, Visit&& visit) {
    for (const auto& item : object) {
        if (is_wanted(std::string_view(item.key()))) {
            visit_leaves(std::string(item.key()), item.value(), visit);
        }
    }
}

/// The same for the metrics of a line, without what rtrain fills in.
template <class Visit>
void visit_metrics(const Line& line, Visit&& visit) {
    const auto is_metric = [&](std::string_view name) {
        return !RunLog::fills_in(name) && !(line.is_step && name == step_field);
    };
    visit_leaves_if(line.values, is_metric, visit);
}

} // namespace rtrain::track
