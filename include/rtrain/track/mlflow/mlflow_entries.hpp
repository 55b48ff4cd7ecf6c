// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run in MLflow's terms: names, metrics, parameters and tags.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/base/text/clean_text.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/track/lines/metrics.hpp>

#include <boost/json/object.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::track::mlflow {

inline constexpr std::size_t longest_name = 250;
inline constexpr std::size_t longest_parameter = 6000;
inline constexpr std::size_t longest_tag = 5000;

/// A metric or a parameter.
struct Entry {
    std::string name; ///< its name in MLflow
    std::string json;
    std::pair<std::int64_t, std::int64_t> point{}; ///< of a metric: step and timestamp
};

namespace internal {

/// ASCII only: for other letters, the result depends on the server's Python.
[[nodiscard]] inline bool is_allowed(char letter) {
    constexpr std::string_view others = "_-./: ";
    return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
           (letter >= 'A' && letter <= 'Z') || others.find(letter) != std::string_view::npos;
}

/// MLflow treats names as paths, and refuses "a//b", "a/../b", "/a" and "a/".
[[nodiscard]] inline std::string with_plain_parts(std::string_view name) {
    std::string plain;
    for (;;) {
        const std::size_t end = name.find('/');
        const std::string_view part = name.substr(0, end);
        plain += part.empty() || part == "." || part == ".." ? "_" : part;
        if (end == std::string_view::npos) {
            return plain;
        }
        plain += '/';
        name.remove_prefix(end + 1);
    }
}

} // namespace internal

/// `name` as MLflow allows it, in at most `most` bytes. A changed name gets a checksum of the
/// original, because two metrics with one name would become one curve.
[[nodiscard]] inline std::string name_of(std::string_view name, std::size_t most = longest_name,
                                         bool has_to_change = false) {
    std::string allowed = internal::with_plain_parts(name);
    for (char& letter : allowed) {
        letter = internal::is_allowed(letter) ? letter : '_';
    }
    if (allowed == name && allowed.size() <= most && !has_to_change) {
        return allowed;
    }
    const std::string sum = checksum_of(name);
    return allowed.substr(0, most - sum.size()) + sum;
}

/// Name of a metric. Metrics of steps get a prefix: steps and reports are numbered separately. A
/// metric "steps" would conflict with that prefix in a file store.
[[nodiscard]] inline std::string name_of_metric(std::string_view name, bool is_step) {
    constexpr std::string_view of_steps = "steps/";
    return is_step ? std::string(of_steps) + name_of(name, longest_name - of_steps.size())
                   : name_of(name, longest_name, name == "steps" || name.starts_with(of_steps));
}

/// The metrics of a line. Omits values that are neither numbers nor booleans.
[[nodiscard]] inline std::vector<Entry> metrics_of(const Line& line) {
    std::vector<Entry> metrics;
    const auto time_ms = static_cast<std::int64_t>(std::llround(line.time_s * 1000));
    visit_numbers(line, [&](const std::string& name, double number) {
        const std::string key = name_of_metric(name, line.is_step);
        metrics.push_back({key,
                           json::serialize({{"key", key},
                                            {"value", number_or_name(number)},
                                            {"timestamp", time_ms},
                                            {"step", line.number}}),
                           {line.number, time_ms}});
    });
    return metrics;
}

/// The leaves of a configuration.
[[nodiscard]] inline std::vector<Entry> parameters_of(const Config& config) {
    std::vector<Entry> parameters;
    visit_settings(config, [&](const std::string& name, const boost::json::value& value) {
        const std::string text =
            value.is_string() ? std::string(value.get_string()) : json::serialize(value);
        const std::string key = name_of(name);
        parameters.push_back(
            {key, json::serialize(
                      {{"key", key}, {"value", json::clean_text(text, longest_parameter)}})});
    });
    return parameters;
}

/// Text on one line of a message.
[[nodiscard]] inline std::string printable(std::string text) {
    std::ranges::replace_if(
        text, [](unsigned char letter) { return letter < ' ' || letter == 0x7f; }, ' ');
    return json::clean_text(text, 300);
}

[[nodiscard]] inline boost::json::object tag(std::string_view name, std::string_view value) {
    return {{"key", name_of(name)}, {"value", json::clean_text(value, longest_tag)}};
}

} // namespace rtrain::track::mlflow
