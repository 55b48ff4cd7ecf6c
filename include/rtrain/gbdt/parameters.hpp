// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parameters of a boosting library as text, from JSON; metrics as JSON. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/config/run_info.hpp>
#include <rtrain/gbdt/row_block.hpp>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace rtrain::gbdt {

/// The shortest text that is read as the same value: "0.3", "1e-05", "true".
[[nodiscard]] inline std::string text_of_value(const boost::json::value& value) {
    if (value.is_string()) {
        return std::string(value.as_string());
    }
    if (value.is_double()) {
        std::array<char, 32> text{};
        const auto end = std::to_chars(text.data(), text.data() + text.size(), value.as_double());
        return {text.data(), end.ptr};
    }
    return boost::json::serialize(value);
}

/// Returns the values of an array, separated by commas.
[[nodiscard]] inline std::string text_of_array(const boost::json::array& values) {
    std::string text;
    for (const auto& value : values) {
        text += (text.empty() ? "" : ",") + text_of_value(value);
    }
    return text;
}

/// Returns the value of a parameter, empty if it is not set.
[[nodiscard]] inline std::string value_of(const Parameters& parameters, std::string_view name) {
    for (const auto& [known, value] : parameters) {
        if (known == name) {
            return value;
        }
    }
    return "";
}

[[nodiscard]] inline Config json_of(const Metrics& metrics) {
    Config json;
    for (const auto& [name, value] : metrics) {
        json[name] = value;
    }
    return json;
}
[[nodiscard]] inline Metrics metrics_of(const Config& json) {
    Metrics metrics;
    for (const auto& metric : json) {
        metrics.emplace_back(metric.key(), metric.value().to_number<double>());
    }
    return metrics;
}

} // namespace rtrain::gbdt
