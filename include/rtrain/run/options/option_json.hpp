// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options to and from JSON. Writes all fields listed in option_fields.hpp except functions, data
/// sets, file systems and trackers, which cannot be serialized.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/run/options/option_fields.hpp>
#include <rtrain/storage/filesystem.hpp>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <boost/json/value_from.hpp>
#include <boost/json/value_to.hpp>

#include <concepts>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace rtrain::detail {

template <class T>
inline constexpr bool can_be_written = true;
template <class Signature>
inline constexpr bool can_be_written<std::function<Signature>> = false;
template <>
inline constexpr bool can_be_written<data::Datasets> = false;
template <>
inline constexpr bool can_be_written<std::optional<storage::AnyFilesystem>> = false;
template <>
inline constexpr bool can_be_written<std::vector<track::AnyCallback>> = false;
template <>
inline constexpr bool can_be_written<stop::Conditions> = false;
template <>
inline constexpr bool can_be_written<std::vector<track::AnyTracker>> = false;
template <>
inline constexpr bool can_be_written<Resume> = false; // applies to one start of a run

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

/// Returns the path or URI, which does not depend on the working directory. Throws StorageError
/// [RT-S8] if it would expose a key.
[[nodiscard]] inline std::string place_of(const Checkpoint& checkpoint) {
    const storage::Location at = checkpoint.location();
    return at.filesystem.is_local() ? std::filesystem::absolute(at.path).string()
                                    : checkpoint.uri();
}

/// Returns the JSON value of an option, or the object of an option struct.
template <class T>
[[nodiscard]] boost::json::value json_of(const T& value) {
    if constexpr (has_fields<T>) {
        boost::json::object object;
        for_each_field<T>([&](const auto& field) {
            if constexpr (can_be_written<typename std::decay_t<decltype(field)>::Value>) {
                object[field.name] = json_of(value.*field.member);
            }
        });
        return object;
    } else if constexpr (is_optional<T>) {
        return value ? json_of(*value) : boost::json::value(nullptr);
    } else if constexpr (std::same_as<T, NumWorkers>) {
        using Object = boost::json::object;
        return value ? boost::json::value(Object{{"min", value.min()}, {"max", value.max()}})
                     : boost::json::value(nullptr);
    } else if constexpr (std::same_as<T, ScoreOrder>) {
        return boost::json::value_from(ScoreOrder::names[value]);
    } else if constexpr (std::same_as<T, LogLevel>) {
        return boost::json::value_from(console::level_names[value]);
    } else if constexpr (std::same_as<T, std::filesystem::path>) {
        return boost::json::value_from(value.string());
    } else if constexpr (std::same_as<T, Checkpoint>) {
        return boost::json::value_from(place_of(value));
    } else {
        return boost::json::value_from(value);
    }
}

/// Parses a number; json::serialize() writes infinities as strings.
[[nodiscard]] inline double number_in(const boost::json::value& json) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    return json == "inf" ? infinity : json == "-inf" ? -infinity : json.to_number<double>();
}

/// Sets an option to what json_of() wrote; missing fields keep their values. Throws std::exception
/// if the JSON does not match.
template <class T>
void read_json(const boost::json::value& json, T& value) {
    if constexpr (has_fields<T>) {
        for_each_field<T>([&, &object = json.as_object()](const auto& field) {
            if constexpr (can_be_written<typename std::decay_t<decltype(field)>::Value>) {
                if (const auto* const found = object.if_contains(field.name)) {
                    read_json(*found, value.*field.member);
                }
            }
        });
    } else if constexpr (std::same_as<T, std::optional<Checkpoint>>) {
        value = json.is_null() ? T() : Checkpoint(std::string(json.as_string()));
    } else if constexpr (is_optional<T>) {
        value.reset();
        if (!json.is_null()) {
            read_json(json, value.emplace());
        }
    } else if constexpr (std::same_as<T, NumWorkers>) {
        value = {};
        if (!json.is_null()) {
            value = {json.at("min").to_number<int>(), json.at("max").to_number<int>()};
        }
    } else if constexpr (std::same_as<T, ScoreOrder>) {
        value = ScoreOrder(std::string_view(json.as_string()));
    } else if constexpr (std::same_as<T, LogLevel>) {
        value = LogLevel(std::string_view(json.as_string()));
    } else if constexpr (std::same_as<T, std::filesystem::path>) {
        value = std::string(json.as_string());
    } else if constexpr (std::same_as<T, double>) {
        value = number_in(json);
    } else {
        value = boost::json::value_to<T>(json);
    }
}

} // namespace rtrain::detail
