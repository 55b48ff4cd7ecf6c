// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decisions as JSON, for messages between driver and ranks.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/launch/supervise/failure_policy.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <string>
#include <utility>

namespace rtrain::launch {

[[nodiscard]] inline boost::json::object to_json(const Decision& decision) {
    boost::json::array skip;
    for (const std::string& name : decision.skip) {
        skip.emplace_back(name);
    }
    return {{"restart", decision.restart},
            {"delay_s", decision.delay_s},
            {"skip", std::move(skip)},
            {"reason", decision.reason}};
}

[[nodiscard]] inline Decision decision_from(const boost::json::object& object) {
    Decision decision{.restart = object.at("restart").as_bool(),
                      .delay_s = object.at("delay_s").to_number<double>(),
                      .skip = {},
                      .reason = std::string(object.at("reason").as_string())};
    for (const auto& name : object.at("skip").as_array()) {
        decision.skip.emplace_back(name.as_string());
    }
    return decision;
}

} // namespace rtrain::launch
