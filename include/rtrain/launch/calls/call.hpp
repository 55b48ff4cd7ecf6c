// SPDX-License-Identifier: Apache-2.0
/// @file
/// Call: a piece of work that a program gives to its ranks, and its answer. Both are JSON in the
/// control channel and in the record of a run (launch/calls/call_record.hpp).
#pragma once

#include <rtrain/base/failure.hpp>
#include <rtrain/base/failure_json.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/launch/control/events.hpp>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::launch {

/// The name of the call that ends the run.
inline constexpr const char* shutdown_call = "shutdown";

struct Call {
    std::int64_t number = 0; ///< from 1, in the order of the program's calls
    std::string name{};
    boost::json::object arguments{};

    bool operator==(const Call&) const = default;

    /// For messages: `train({"epochs":2})`.
    [[nodiscard]] std::string text() const {
        return name + '(' + (arguments.empty() ? "" : json::serialize(arguments)) + ')';
    }
};

[[nodiscard]] inline boost::json::object to_json(const Call& call) {
    return {{"number", call.number}, {"name", call.name}, {"arguments", call.arguments}};
}
[[nodiscard]] inline Call call_from(const boost::json::object& object) {
    return {.number = object.at("number").to_number<std::int64_t>(),
            .name = std::string(object.at("name").as_string()),
            .arguments = object.at("arguments").as_object()};
}

/// Reads json::serialize(to_json(call)).
[[nodiscard]] inline Call call_in(const std::string& text) {
    return call_from(json::parse(text).as_object());
}

struct CallReply {
    std::int64_t number = 0; ///< of the call
    boost::json::object values{};
    std::optional<Failure> refusal{}; ///< the call did nothing; the ranks continue
};

[[nodiscard]] inline boost::json::object to_json(const CallReply& answer) {
    boost::json::object object{{"number", answer.number}, {"values", answer.values}};
    if (answer.refusal) {
        object["refusal"] = to_json(*answer.refusal);
    }
    return object;
}

[[nodiscard]] inline CallReply answer_from(const boost::json::object& object) {
    CallReply answer{.number = object.at("number").to_number<std::int64_t>(),
                     .values = object.at("values").as_object()};
    if (const auto* const refusal = object.if_contains("refusal")) {
        answer.refusal = failure_from(refusal->as_object());
    }
    return answer;
}

[[nodiscard]] inline event::Call event_of(const Call& call) {
    return {.number = call.number, .name = call.name, .arguments = json::serialize(call.arguments)};
}
[[nodiscard]] inline Call call_of(const event::Call& sent) {
    return {.number = sent.number,
            .name = sent.name,
            .arguments = json::parse(sent.arguments).as_object()};
}

} // namespace rtrain::launch
