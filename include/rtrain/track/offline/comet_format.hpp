// SPDX-License-Identifier: Apache-2.0
/// @file
/// Comet's offline archives, compared with comet_ml 3.58.8 (tests/track/offline/comet_test.py): a
/// zip file of experiment.json, the run's description, and messages.json, its values line by line.
/// Private to Comet; included by comet_definitions.hpp only.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/track/lines/metrics.hpp>
#include <rtrain/track/lines/reported_image.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::track {

/// Names of the parts of an archive.
inline constexpr const char* comet_description_file = "experiment.json";
inline constexpr const char* comet_messages_file = "messages.json";

/// Comet drops multi-line names and tags, and all metrics after one.
[[nodiscard]] inline std::string in_one_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

/// Creates the numbered messages of an archive.
class CometMessages {
public:
    [[nodiscard]] std::string run_name(std::string_view name) {
        return other(key_of_run_name, name);
    }

    /// The leaves of a configuration.
    [[nodiscard]] std::string parameters(const Config& config, double time_s) {
        std::string lines;
        visit_settings(config, [&](const std::string& name, const boost::json::value& value) {
            lines += message("parameter_msg", {{"param",
                                                {{"paramName", name_of(name)},
                                                 {"paramValue", parameter_value(value)},
                                                 {"step", nullptr},
                                                 {"source", "manual"}}},
                                               {"local_timestamp", milliseconds(time_s)}});
        });
        return lines;
    }

    /// The metrics of a line: numbers as metrics; texts and lists as "other" entries, of which the
    /// last counts.
    [[nodiscard]] std::string metrics(const Line& line) {
        std::string lines;
        visit_numbers(line, [&](const std::string& name, double number) {
            lines += message("metric_msg", {{"metric",
                                             {{"metricName", name_of_metric(name, line.is_step)},
                                              {"metricValue", number_or_name(number)},
                                              {"step", line.number},
                                              {"epoch", nullptr}}},
                                            {"local_timestamp", milliseconds(line.time_s)}});
        });
        visit_metrics(line, [&](const std::string& name, const boost::json::value& metric) {
            if ((!metric.is_string() && !metric.is_array()) || json::number(metric) ||
                is_image(metric)) {
                return;
            }
            std::string value =
                metric.is_string() ? std::string(metric.get_string()) : json::serialize(metric);
            if (auto& before = others_[name]; before != value) {
                lines += other(name == key_of_run_name ? name + checksum_of(name) : name_of(name),
                               value);
                before = std::move(value);
            }
        });
        return lines;
    }

    [[nodiscard]] static std::int64_t milliseconds(double time_s) {
        return std::llround(time_s * 1000);
    }

private:
    static constexpr std::string_view key_of_run_name = "Name";

    [[nodiscard]] std::string other(std::string_view key, std::string_view value) {
        return message("log_other", {{"key", key}, {"value", value}});
    }

    [[nodiscard]] std::string message(std::string_view type, Config payload) {
        payload["message_id"] = ++messages_;
        return json::serialize(Config{{"type", type}, {"payload", std::move(payload)}}) + "\n";
    }

    [[nodiscard]] static std::string name_of(const std::string& name) {
        std::string allowed = in_one_line(name);
        return allowed == name ? name : allowed + checksum_of(name);
    }

    /// Metrics of steps get a prefix: steps and reports are numbered separately.
    [[nodiscard]] static std::string name_of_metric(const std::string& name, bool is_step) {
        const std::string of_steps = "steps/";
        return is_step                      ? of_steps + name_of(name)
               : name.starts_with(of_steps) ? name_of(name) + checksum_of(name)
                                            : name_of(name);
    }

    /// Comet does not support lists.
    [[nodiscard]] static boost::json::value parameter_value(const boost::json::value& value) {
        return value.is_array() ? boost::json::value(json::serialize(value)) : value;
    }

    std::int64_t messages_ = 0;
    std::unordered_map<std::string, std::string> others_; ///< values that were sent last
};

/// The run, for experiment.json.
struct CometDescription {
    std::string key;
    std::string project;
    std::string workspace;
    std::vector<std::string> tags;
};

[[nodiscard]] inline std::string comet_description(const CometDescription& run, double start_s,
                                                   double stop_s, bool has_failed) {
    const auto or_null = [](const std::string& text) {
        return text.empty() ? boost::json::value(nullptr) : boost::json::value(text);
    };
    return json::serialize(
        Config{{"offline_id", run.key},
               {"project_name", or_null(run.project)},
               {"workspace", or_null(run.workspace)},
               {"start_time", CometMessages::milliseconds(start_s)},
               {"stop_time", CometMessages::milliseconds(stop_s)},
               {"tags", boost::json::array(run.tags.begin(), run.tags.end())},
               {"resume_strategy", "create"},
               {"customer_error_reported", has_failed},
               {"customer_error_message", or_null(has_failed ? "the run has failed" : "")}});
}

} // namespace rtrain::track
