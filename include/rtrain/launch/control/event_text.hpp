// SPDX-License-Identifier: Apache-2.0
/// @file
/// The wire format of events: a JSON object with the event's name in "kind", and exactly its
/// fields. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/failure_json.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/clean_text.hpp>
#include <rtrain/launch/control/events.hpp>
#include <rtrain/launch/control/frame_reader.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value_from.hpp>
#include <boost/system/error_code.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::launch::control {

using rtrain::detail::concat;

template <class Event, class Value>
struct Field {
    std::string_view name; ///< unused for a Failure, whose fields are the event's own
    Value Event::*member;
};
template <class Event, class Value>
[[nodiscard]] consteval Field<Event, Value> field(std::string_view name, Value Event::*member) {
    return {name, member};
}

template <class EventType, class... Values>
struct Format {
    using Event = EventType;
    std::string_view name;
    std::tuple<Field<Event, Values>...> fields;
};
template <class Event, class... Values>
[[nodiscard]] consteval Format<Event, Values...> format(std::string_view name,
                                                        Field<Event, Values>... fields) {
    return {name, {fields...}};
}

inline constexpr std::tuple formats{
    format<event::Training>("training", field("checkpoint", &event::Training::checkpoint)),
    format<event::Failed>("failed", field("", &event::Failed::failure),
                          field("checkpoint", &event::Failed::checkpoint),
                          field("lost", &event::Failed::lost)),
    format<event::Ending>("ending", field("text", &event::Ending::text)),
    format<event::LastWords>("last_words", field("", &event::LastWords::failure)),
    format<event::Saved>("saved", field("checkpoint", &event::Saved::checkpoint),
                         field("iteration", &event::Saved::iteration)),
    format<console::Progress>(
        "bar", field("epoch", &console::Progress::epoch),
        field("epochs", &console::Progress::epochs), field("done", &console::Progress::done),
        field("total", &console::Progress::total),
        field("elapsed_s", &console::Progress::elapsed_s), field("rate", &console::Progress::rate),
        field("metrics", &console::Progress::metrics)),
    format<event::Shown>("shown", field("text", &event::Shown::text)),
    format<event::Stack>("stack", field("text", &event::Stack::text)),
    format<event::RunEnded>("run_ended"),
    format<event::RunBegins>("run_begins", field("run", &event::RunBegins::run)),
    format<event::Address>("address", field("host", &event::Address::host),
                           field("port", &event::Address::port)),
    format<event::Answer>("answer", field("text", &event::Answer::text)),
    format<event::Done>("done"),
    format<event::Welcome>("welcome"),
    format<event::Refused>("refused", field("why", &event::Refused::why)),
    format<event::Ping>("ping"),
    format<event::Preempt>("preempt", field("grace_s", &event::Preempt::grace_s)),
    format<event::Dump>("dump"),
    format<event::Addresses>("addresses", field("hosts", &event::Addresses::hosts),
                             field("ports", &event::Addresses::ports)),
    format<event::Call>("call", field("number", &event::Call::number),
                        field("name", &event::Call::name),
                        field("arguments", &event::Call::arguments)),
    format<event::End>("end"),
    format<Decision>("decision", field("restart", &Decision::restart),
                     field("delay_s", &Decision::delay_s), field("skip", &Decision::skip),
                     field("reason", &Decision::reason)),
    format<event::Report>(
        "report", field("call", &event::Report::call), field("metrics", &event::Report::metrics),
        field("has_files", &event::Report::has_files),
        field("in_background", &event::Report::in_background),
        field("files", &event::Report::files), field("checkpoint", &event::Report::checkpoint),
        field("metadata", &event::Report::metadata), field("code", &event::Report::code),
        field("error", &event::Report::error)),
    format<event::Stored>(
        "stored", field("call", &event::Stored::call), field("shared", &event::Stored::shared),
        field("code", &event::Stored::code), field("error", &event::Stored::error)),
    format<event::Meet>("meet", field("call", &event::Meet::call),
                        field("function", &event::Meet::function),
                        field("text", &event::Meet::text)),
    format<event::Log>("log", field("metrics", &event::Log::metrics)),
    format<event::Store>(
        "store", field("call", &event::Store::call), field("run", &event::Store::run),
        field("attempt", &event::Store::attempt), field("checkpoint", &event::Store::checkpoint),
        field("files", &event::Store::files), field("shared", &event::Store::shared)),
    format<event::Reported>("reported", field("call", &event::Reported::call),
                            field("iteration", &event::Reported::iteration),
                            field("checkpoint", &event::Reported::checkpoint),
                            field("stop", &event::Reported::stop)),
    format<event::Met>("met", field("call", &event::Met::call), field("text", &event::Met::text)),
    format<event::CallFailed>("call_failed", field("call", &event::CallFailed::call),
                              field("code", &event::CallFailed::code),
                              field("error", &event::CallFailed::error))};

template <class Event, class... Formats>
[[nodiscard]] consteval std::size_t index_of(const std::tuple<Formats...>& /*formats*/) {
    const std::array<bool, sizeof...(Formats)> is_its{
        std::is_same_v<typename Formats::Event, Event>...};
    return static_cast<std::size_t>(std::find(is_its.begin(), is_its.end(), true) - is_its.begin());
}

/// An event without a format does not compile.
template <class Event>
inline constexpr const auto& format_of = std::get<index_of<Event>(formats)>(formats);

[[nodiscard]] inline const boost::json::value& field_of(const boost::json::object& object,
                                                        std::string_view name) {
    const auto* const value = object.if_contains(name);
    if (value == nullptr) {
        malformed(concat("no field \"", name, '"'));
    }
    return *value;
}

[[nodiscard]] inline std::string_view text_in(const boost::json::object& object,
                                              std::string_view name) {
    const auto* const text = field_of(object, name).if_string();
    if (text == nullptr) {
        malformed(concat("\"", name, "\" is not a string"));
    }
    return {text->data(), text->size()};
}

// Each returns false if the value has the wrong type or is out of range.

[[nodiscard]] inline bool parse(const boost::json::value& value, std::string& text) {
    const auto* const found = value.if_string();
    if (found != nullptr) {
        text.assign(found->data(), found->size());
    }
    return found != nullptr;
}
[[nodiscard]] inline bool parse(const boost::json::value& value, bool& flag) {
    flag = value.is_bool() && value.get_bool();
    return value.is_bool();
}
/// Seconds, or a rate.
[[nodiscard]] inline bool parse(const boost::json::value& value, double& number) {
    boost::system::error_code error;
    number = value.to_number<double>(error);
    return !error && std::isfinite(number) && number >= 0;
}
/// A count.
[[nodiscard]] inline bool parse(const boost::json::value& value, std::int64_t& count) {
    count = value.is_int64() ? value.get_int64() : -1;
    return count >= 0;
}
/// A rank.
[[nodiscard]] inline bool parse(const boost::json::value& value, int& rank) {
    std::int64_t number = 0;
    const bool fits = parse(value, number) && number <= std::numeric_limits<int>::max();
    rank = fits ? static_cast<int>(number) : 0;
    return fits;
}
/// Metrics, or other values of users. Numbers beyond the largest double are rejected.
[[nodiscard]] inline bool parse(const boost::json::value& value, boost::json::object& object) {
    if (!value.is_object() || json::finite(value) != value) {
        return false;
    }
    object = value.get_object();
    return true;
}
template <class Item>
[[nodiscard]] bool parse(const boost::json::value& value, std::vector<Item>& items) {
    const auto* const array = value.if_array();
    return array != nullptr && std::all_of(array->begin(), array->end(), [&](const auto& item) {
               return parse(item, items.emplace_back());
           });
}

template <class Value>
void parse_field(std::string_view event, const boost::json::object& body, std::string_view name,
                 Value& value) {
    if (!parse(field_of(body, name), value)) {
        malformed(concat('"', event, "\" has a wrong \"", name, '"'));
    }
}

/// Returns the number of fields that belong to the member.
template <class Event, class Value>
[[nodiscard]] std::size_t parse_member(const boost::json::object& body, Event& event,
                                       const Field<Event, Value>& field) {
    if constexpr (std::is_same_v<Value, Failure>) {
        std::size_t count = 0;
        const auto check = [&](std::string_view name, auto value, bool required) {
            if (required || body.contains(name)) {
                parse_field(format_of<Event>.name, body, name, value);
                ++count;
            }
        };
        check("code", std::string(), true);
        check("message", std::string(), true);
        check("how", std::string(), false);
        check("rank", 0, false);
        check("from_outside", false, false);
        event.*field.member = failure_from(body);
        return count;
    } else {
        parse_field(format_of<Event>.name, body, field.name, event.*field.member);
        return 1;
    }
}

/// Parses the fields of an event. Throws LaunchError [RT-L9].
template <class Event>
[[nodiscard]] Event parse_event(const boost::json::object& body) {
    Event event;
    std::size_t count = 0;
    std::apply([&](const auto&... fields) { ((count += parse_member(body, event, fields)), ...); },
               format_of<Event>.fields);
    if (body.size() != count) {
        malformed(concat('"', format_of<Event>.name, "\" has ", body.size(), " fields instead of ",
                         count));
    }
    return event;
}

/// Returns the fields of an event. Throws LaunchError [RT-L9] for numbers that parse_event()
/// rejects.
template <class Event>
[[nodiscard]] boost::json::object fields_of(const Event& event) {
    boost::json::object body;
    const auto add = [&]<class Value>(const Field<Event, Value>& field) {
        if constexpr (std::is_same_v<Value, Failure>) {
            const auto failure = to_json(event.*field.member);
            body.insert(failure.begin(), failure.end());
        } else {
            body[field.name] = boost::json::value_from(event.*field.member);
        }
    };
    std::apply([&](const auto&... fields) { (add(fields), ...); }, format_of<Event>.fields);
    (void)parse_event<Event>(body);
    return body;
}

template <class... Events>
[[nodiscard]] std::string_view name_of(const std::variant<Events...>& event) {
    return std::visit([]<class Event>(const Event&) { return format_of<Event>.name; }, event);
}

/// Returns false if the variant has no event of that name. Throws LaunchError [RT-L9].
template <class... Events>
[[nodiscard]] bool parse(std::string_view name, const boost::json::object& body,
                         std::variant<Events...>& event) {
    return ((name == format_of<Events>.name && (event = parse_event<Events>(body), true)) || ...);
}
template <class... Events>
[[nodiscard]] bool has_event(std::type_identity<std::variant<Events...>> /*of*/,
                             std::string_view name) {
    return ((name == format_of<Events>.name) || ...);
}

/// Parses a RankEvent or a DriverEvent; `Other` is the one that only the other side sends. Throws
/// LaunchError [RT-L9].
template <class Expected, class Other>
[[nodiscard]] Expected parse_event_of(boost::json::object object) {
    const std::string kind(text_in(object, "kind"));
    object.erase("kind");
    Expected event;
    if (!parse(kind, object, event)) {
        malformed(has_event(std::type_identity<Other>(), kind)
                      ? concat('"', kind, "\" was sent by the wrong side")
                      : concat("its \"kind\" \"", json::clean_text(kind, 40), "\" is unknown"));
    }
    return event;
}

} // namespace rtrain::launch::control
