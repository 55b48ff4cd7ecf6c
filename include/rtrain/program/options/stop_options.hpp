// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stop conditions in JSON: Ray's {"accuracy": 0.9}, or a list of {"kind": "early_stopping", ...}.
/// Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/name_table.hpp>
#include <rtrain/config/config_value.hpp>
#include <rtrain/config/score_order.hpp>
#include <rtrain/config/stop.hpp>
#include <rtrain/program/options/json_fields.hpp>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace rtrain::program {

namespace internal {

/// "at_least" or "at_most".
struct DirectionName {
    static constexpr auto names = detail::name_table<stop::Direction>(
        {{stop::Direction::at_least, "at_least"}, {stop::Direction::at_most, "at_most"}});

    DirectionName() = default;
    /// Throws ConfigError [RT-E64].
    explicit DirectionName(std::string_view name) {
        const auto found = names.parse(name);
        if (!found) {
            throw ConfigError("RT-E64", detail::concat('"', name,
                                                       "\" is not a direction; expected "
                                                       "\"at_least\" or \"at_most\""));
        }
        value = *found;
    }

    stop::Direction value = stop::Direction::at_least;
};

[[nodiscard]] inline stop::Condition condition_of(const std::string& kind, JsonFields& fields) {
    if (kind == "max_iterations") {
        stop::MaxIterations it;
        fields.read("count", it.count);
        return it;
    }
    if (kind == "max_time") {
        stop::MaxTime it;
        fields.read("seconds", it.seconds);
        return it;
    }
    if (kind == "threshold") {
        stop::Threshold it;
        DirectionName direction;
        fields.read("metric", it.metric);
        fields.read("bound", it.bound);
        fields.read_name("direction", direction);
        it.direction = direction.value;
        return it;
    }
    if (kind == "early_stopping") {
        stop::EarlyStopping it;
        fields.read("metric", it.metric);
        fields.read_name("mode", it.mode);
        fields.read("patience", it.patience);
        fields.read("min_delta", it.min_delta);
        return it;
    }
    stop::TrialPlateau it;
    ScoreOrder mode = ScoreOrder::min;
    fields.read("metric", it.metric);
    fields.read("std", it.std);
    fields.read("num_results", it.num_results);
    fields.read("grace_period", it.grace_period);
    fields.read("metric_threshold", it.metric_threshold);
    fields.read_name("mode", mode);
    fields.use("mode", [&](const auto&, const auto&) { it.mode = mode; });
    return it;
}

} // namespace internal

/// Throws ConfigError [RT-E64].
[[nodiscard]] inline stop::Conditions stop_in(const boost::json::value& json,
                                              const std::string& key) {
    stop::Conditions all;
    if (json.is_object()) {
        std::map<std::string, double> bounds;
        JsonFields::checked([&] { detail::ConfigValue(json, key).read(bounds); });
        for (const auto& [metric, bound] : bounds) {
            all.add(stop::Threshold{.metric = metric, .bound = bound});
        }
        return all;
    }
    if (!json.is_array()) {
        throw ConfigError("RT-E64", detail::concat('"', key,
                                                   "\" is neither an object of bounds by metric "
                                                   "nor a list of conditions"));
    }
    for (std::size_t i = 0; i < json.get_array().size(); ++i) {
        JsonFields fields(json.get_array()[i], detail::concat(key, '/', i));
        const std::string kind = fields.read_kind(
            {"max_iterations", "max_time", "threshold", "early_stopping", "trial_plateau"});
        all.add(internal::condition_of(kind, fields));
        fields.finish();
    }
    return all;
}

} // namespace rtrain::program
