// SPDX-License-Identifier: Apache-2.0
/// @file
/// The kinds of messages between a search and the ranks that run its trials, as named in "kind",
/// and the message about a saved state. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/name_table.hpp>
#include <rtrain/tune/controller/plan.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace rtrain::tune::internal {

enum class MessageKind : unsigned char {
    // to the search
    hello,    ///< a slot's first message
    report,   ///< of a slot's trial
    result,   ///< a report of a trial's run
    saved,    ///< a state
    begun,    ///< the run of the trial has begun
    ended,    ///< it has succeeded
    returned, ///< a slot's trial has returned
    failed,   ///< a slot's trial has thrown
    // from the search
    trial,   ///< run this one
    verdict, ///< the answer to a report or result
    end      ///< no trial follows
};

inline constexpr auto message_names =
    rtrain::detail::name_table<MessageKind>({{MessageKind::hello, "hello"},
                                             {MessageKind::report, "report"},
                                             {MessageKind::result, "result"},
                                             {MessageKind::saved, "saved"},
                                             {MessageKind::begun, "begun"},
                                             {MessageKind::ended, "ended"},
                                             {MessageKind::returned, "returned"},
                                             {MessageKind::failed, "failed"},
                                             {MessageKind::trial, "trial"},
                                             {MessageKind::verdict, "verdict"},
                                             {MessageKind::end, "end"}});

/// Throws std::exception for an unknown message.
[[nodiscard]] inline MessageKind kind_of(const boost::json::object& message) {
    const std::string name(message.at("kind").as_string());
    const auto kind = message_names.parse(name);
    if (!kind) {
        throw std::invalid_argument("unknown message " + name);
    }
    return *kind;
}

[[nodiscard]] inline boost::json::object saved_message(const SavedState& state) {
    return {{"kind", message_names[MessageKind::saved]},
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
