// SPDX-License-Identifier: Apache-2.0
/// @file
/// The message "saved", by which the ranks of a trial and a slot report a saved state.
#pragma once

#include <rtrain/tune/plan.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <string>

namespace rtrain::tune::internal {

[[nodiscard]] inline boost::json::object saved_message(const SavedState& state) {
    return {{"kind", "saved"},
            {"state", state.name},
            {"reports", state.reports},
            {"time_s", state.time_s}};
}

[[nodiscard]] inline SavedState saved_state_from(const boost::json::object& message) {
    return {.name = std::string(message.at("state").as_string()),
            .reports = message.at("reports").to_number<std::int64_t>(),
            .time_s = message.at("time_s").to_number<double>()};
}

} // namespace rtrain::tune::internal
