// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door config_value.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/known_names.hpp>
#include <rtrain/base/text/c_locale.hpp>
#include <rtrain/config/config_value.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::detail {

RTRAIN_DOOR void ConfigValue::read(bool& to) const {
    if (!json_.is_bool()) {
        refuse("expected true or false");
    }
    to = json_.get_bool();
}

RTRAIN_DOOR void ConfigValue::read(float& to) const {
    constexpr float largest = std::numeric_limits<float>::max();
    const double value = number();
    if (std::isfinite(value) && std::abs(value) > largest) {
        refuse(concat("expected a number from ", -largest, " to ", largest));
    }
    to = static_cast<float>(value);
}

RTRAIN_DOOR void ConfigValue::read(double& to) const {
    to = number();
}

RTRAIN_DOOR void ConfigValue::read(std::string& to) const {
    if (!json_.is_string()) {
        refuse("expected a string");
    }
    to = json_.get_string();
}

RTRAIN_DOOR const boost::json::array& ConfigValue::array() const {
    if (!json_.is_array()) {
        refuse("expected an array");
    }
    return json_.get_array();
}

RTRAIN_DOOR const boost::json::object& ConfigValue::object() const {
    if (!json_.is_object()) {
        refuse("expected an object");
    }
    return json_.get_object();
}

RTRAIN_DOOR double ConfigValue::number() const {
    const auto value = json_.is_null() ? std::nullopt : json::number(json_);
    if (!value) {
        refuse("expected a number");
    }
    return *value;
}

RTRAIN_DOOR void ConfigValue::require_name(bool is_known,
                                           const std::vector<std::string>& names) const {
    if (!is_known) {
        const auto* const name = json_.if_string();
        refuse(concat(name != nullptr ? did_you_mean(*name, names) : "", "expected one of ",
                      listed(names)));
    }
}

RTRAIN_DOOR void ConfigValue::require_keys(const std::vector<std::string>& names,
                                           const std::string& type) const {
    for (const auto& item : object()) {
        if (std::ranges::find(names, item.key()) == names.end()) {
            throw ConfigError("RT-C167",
                              concat("the config has \"", below(item.key(), json_).key_, "\", but ",
                                     type, " has no such member; ", did_you_mean(item.key(), names),
                                     "its members are ", listed(names)));
        }
    }
}

RTRAIN_DOOR void ConfigValue::refuse(const std::string& advice) const {
    constexpr std::size_t longest = 200;
    const auto* const number = json_.if_double();
    throw ConfigError("RT-C168",
                      concat("the config has ",
                             number != nullptr ? print("%.15g", *number)
                                               : json::serialize(json_).substr(0, longest),
                             " for \"", key_, "\"; ", advice));
}

} // namespace rtrain::detail
