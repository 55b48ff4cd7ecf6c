// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metrics as TensorBoard values: numbers, texts, histograms, images, hyperparameters.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/track/lines/metrics.hpp>
#include <rtrain/track/lines/reported_image.hpp>
#include <rtrain/track/tensorboard/event_file.hpp>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::track::event {

/// The TensorBoard plugin that shows a value, and its data.
[[nodiscard]] inline std::string plugin(std::string_view name, std::string_view content) {
    const auto data = Message().bytes(1, name).bytes(2, content);
    return Message().bytes(1, data.text()).text();
}

[[nodiscard]] inline std::string scalar(const std::string& name, double number) {
    return Message().bytes(1, name).real(2, static_cast<float>(number)).text();
}

[[nodiscard]] inline std::string text(const std::string& name, std::string_view words) {
    constexpr unsigned string_type = 7;
    const auto dimension = Message().number(1, 1);
    const auto shape = Message().bytes(2, dimension.text());
    const auto tensor = Message().number(1, string_type).bytes(2, shape.text()).bytes(8, words);
    return Message()
        .bytes(1, name + "/text_summary")
        .bytes(9, plugin("text", ""))
        .bytes(8, tensor.text())
        .text();
}

/// A histogram of finite numbers, at least one.
[[nodiscard]] inline std::string histogram(const std::string& name,
                                           const std::vector<double>& numbers) {
    constexpr std::size_t buckets = 30;
    const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
    const double width = (*most - *least) / buckets;
    std::array<double, buckets> limits{};
    std::array<double, buckets> counts{};
    for (std::size_t i = 0; i < buckets; ++i) {
        limits[i] = i + 1 < buckets ? *least + width * static_cast<double>(i + 1) : *most;
    }
    double sum = 0;
    double squares = 0;
    for (const double number : numbers) {
        const auto place = std::lower_bound(limits.begin(), limits.end(), number) - limits.begin();
        counts[std::min(static_cast<std::size_t>(place), buckets - 1)] += 1;
        sum += number;
        squares += number * number;
    }
    const auto packed = [](const std::array<double, buckets>& values) {
        return std::string_view(reinterpret_cast<const char*>(values.data()), sizeof values);
    };
    const auto message = Message()
                             .real(1, *least)
                             .real(2, *most)
                             .real(3, static_cast<double>(numbers.size()))
                             .real(4, sum)
                             .real(5, squares)
                             .bytes(6, packed(limits))
                             .bytes(7, packed(counts));
    return Message().bytes(1, name).bytes(5, message.text()).text();
}

[[nodiscard]] inline std::string image(const std::string& name, const ReportedImage& shown) {
    const auto message = Message()
                             .number(1, shown.height)
                             .number(2, shown.width)
                             .number(3, shown.channels)
                             .bytes(4, shown.file);
    return Message().bytes(1, name).bytes(4, message.text()).text();
}

/// The summary value of a metric; "" if it cannot be shown.
[[nodiscard]] inline std::string value_of(const std::string& name,
                                          const boost::json::value& metric) {
    if (const auto number = json::number(metric)) {
        return scalar(name, *number);
    }
    if (const auto* const array = metric.if_array()) {
        std::vector<double> numbers;
        for (const boost::json::value& item : *array) {
            const auto number = json::number(item);
            if (number && std::isfinite(*number)) {
                numbers.push_back(*number);
            }
        }
        return numbers.empty() ? "" : histogram(name, numbers);
    }
    if (const auto shown = image_in(metric)) {
        return image(name, *shown);
    }
    return text(name, metric.is_string() ? std::string_view(metric.get_string())
                                         : std::string_view(metric.get_bool() ? "true" : "false"));
}

/// The hyperparameters of a run, for TensorBoard's HPARAMS tab.
[[nodiscard]] inline std::string hyperparameters(const Config& config, const std::string& run,
                                                 double time_s) {
    Message session;
    const auto visit = [&](const std::string& name, const boost::json::value& setting) {
        Message value;
        if (setting.is_bool()) {
            value.number(4, setting.get_bool() ? 1 : 0);
        } else if (const auto number = json::number(setting)) {
            value.real(2, *number);
        } else {
            value.bytes(3, setting.is_string() ? std::string(setting.get_string())
                                               : json::serialize(setting));
        }
        session.bytes(1, Message().bytes(1, name).bytes(2, value.text()).text());
    };
    visit_settings(config, visit);
    session.bytes(4, run).real(5, time_s);
    const auto content = Message().bytes(3, session.text());
    return Message()
        .bytes(1, "_hparams_/session_start_info")
        .bytes(9, plugin("hparams", content.text()))
        .text();
}

} // namespace rtrain::track::event
