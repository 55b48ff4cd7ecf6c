// SPDX-License-Identifier: Apache-2.0
/// @file
/// ConfigValue: reads JSON into the members of a configuration struct; config_json() is the
/// reverse. Cost tier 1: Boost.JSON and Boost.Describe.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/type_name.hpp>
#include <rtrain/config/described.hpp>
#include <rtrain/config/run_info.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <boost/system/error_code.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain::detail {

template <Described T>
[[nodiscard]] consteval bool has_config_members();

template <class T>
concept PlainConfigValue = std::integral<T> || std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, std::string> || std::same_as<T, Config>;

/// True for the types that members of a configuration struct may have.
template <class T>
inline constexpr bool is_config_value = PlainConfigValue<T> || DescribedEnum<T>;
template <Described T>
inline constexpr bool is_config_value<T> = std::default_initializable<T>&& has_config_members<T>();
template <class T>
inline constexpr bool is_config_value<std::optional<T>> = is_config_value<T>;
template <class T>
inline constexpr bool is_config_value<std::vector<T>> = is_config_value<T>;
template <class T, std::size_t size>
inline constexpr bool is_config_value<std::array<T, size>> = is_config_value<T>;
template <class T>
inline constexpr bool is_config_value<std::map<std::string, T>> = is_config_value<T>;

template <class Struct, class T>
std::type_identity<T> type_of_member(T Struct::*member);

template <Described T>
consteval bool has_config_members() {
    bool all = true;
    for_each_member<T>([&](const char* /*name*/, auto member) {
        using Member = typename decltype(type_of_member(member))::type;
        all = all && !std::is_const_v<Member> && is_config_value<Member>;
    });
    return all;
}

/// A value of a configuration. `key`: its path, such as "optimizer/lr", for messages.
class ConfigValue {
public:
    ConfigValue(const boost::json::value& json, std::string key)
        : json_(json), key_(std::move(key)) {}

    /// Sets `to` to the value. Throws ConfigError for an unknown key [RT-C167], or a value of the
    /// wrong type or range [RT-C168].
    void read(bool& to) const;
    void read(float& to) const;
    void read(double& to) const;
    void read(std::string& to) const;
    void read(Config& to) const { to = object(); }

    template <std::integral T>
    void read(T& to) const {
        boost::system::error_code failed;
        to = json_.to_number<T>(failed);
        if (failed) {
            refuse("expected an integer from " + std::to_string(std::numeric_limits<T>::min()) +
                   " to " + std::to_string(std::numeric_limits<T>::max()));
        }
    }

    template <class T>
    void read(std::optional<T>& to) const {
        json_.is_null() ? to.reset() : read(to.emplace());
    }

    template <class T>
    void read(std::vector<T>& to) const {
        to.clear();
        for (const auto& json : array()) {
            T item{};
            below(std::to_string(to.size()), json).read(item);
            to.push_back(std::move(item));
        }
    }

    template <class T, std::size_t size>
    void read(std::array<T, size>& to) const {
        if (array().size() != size) {
            refuse("expected an array of " + std::to_string(size));
        }
        for (std::size_t i = 0; i < size; ++i) {
            below(std::to_string(i), array()[i]).read(to[i]);
        }
    }

    template <class T>
    void read(std::map<std::string, T>& to) const {
        to.clear();
        for (const auto& item : object()) {
            below(item.key(), item.value()).read(to[std::string(item.key())]);
        }
    }

    template <DescribedEnum T>
    void read(T& to) const {
        std::vector<std::string> names;
        bool is_known = false;
        for_each_enumerator<T>([&](const char* name, T value) {
            names.emplace_back(name);
            if (json_ == name) {
                to = value;
                is_known = true;
            }
        });
        require_name(is_known, names);
    }

    template <Described T>
    void read(T& to) const {
        std::vector<std::string> names;
        for_each_member<T>([&](const char* name, auto member) {
            names.emplace_back(name);
            if (const auto* const json = object().if_contains(name)) {
                below(name, *json).read(to.*member);
            }
        });
        require_keys(names, type_name<T>());
    }

private:
    [[nodiscard]] ConfigValue below(std::string_view name, const boost::json::value& json) const {
        return {json, key_ + (key_.empty() ? "" : "/") + std::string(name)};
    }
    [[nodiscard]] const boost::json::array& array() const;
    [[nodiscard]] const boost::json::object& object() const;
    [[nodiscard]] double number() const;
    void require_name(bool is_known, const std::vector<std::string>& names) const;
    void require_keys(const std::vector<std::string>& names, const std::string& type) const;
    [[noreturn]] void refuse(const std::string& advice) const;

    const boost::json::value& json_;
    std::string key_;
};

/// Returns such a value as JSON. An enumerator that is not described is a number.
template <class T>
[[nodiscard]] boost::json::value config_json(const T& value) {
    if constexpr (PlainConfigValue<T>) {
        return boost::json::value(value);
    } else if constexpr (DescribedEnum<T>) {
        boost::json::value json(static_cast<std::int64_t>(value));
        for_each_enumerator<T>([&](const char* name, T known) {
            if (value == known) {
                json = name;
            }
        });
        return json;
    } else if constexpr (Described<T>) {
        boost::json::object object;
        for_each_member<T>(
            [&](const char* name, auto member) { object[name] = config_json(value.*member); });
        return object;
    } else if constexpr (requires { value.has_value(); }) {
        return value ? config_json(*value) : boost::json::value(nullptr);
    } else if constexpr (requires { typename T::mapped_type; }) {
        boost::json::object object;
        for (const auto& [name, item] : value) {
            object[name] = config_json(item);
        }
        return object;
    } else {
        boost::json::array array;
        for (const auto& item : value) {
            array.push_back(config_json(item));
        }
        return array;
    }
}

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/config/config_value_definitions.hpp>
#endif
