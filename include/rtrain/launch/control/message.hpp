// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages between driver and ranks on the control channel (launch/control/server.hpp,
/// launch/control/driver_link.hpp). A frame is 4 bytes with the length of the rest, little-endian,
/// and a JSON object with its type in "kind".
///
/// Any process that can reach the driver may send frames. A frame's length is checked before memory
/// is allocated, and JSON is at most 32 levels deep. A message must have a known kind, and
/// exactly its fields.
/// Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/clean_text.hpp>
#include <rtrain/launch/control/event_text.hpp>
#include <rtrain/launch/control/events.hpp>
#include <rtrain/launch/control/frame_reader.hpp>
#include <rtrain/launch/control/rank_report.hpp>
#include <rtrain/process/status/rank_status.hpp>

#include <boost/json/parse_options.hpp>
#include <boost/system/error_code.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace rtrain::launch {

static_assert(boost::json::parse_options{}.max_depth == 32);

/// The first message of a rank: its identity.
struct Hello {
    int rank = 0;
    int size = 0;
    int attempt = 0;
    int pid = 0;      ///< as the driver sees it when `local`
    std::string host; ///< host name
    /// True if the rank runs on the driver's machine. Not sent: the server sets it.
    bool local = false;

    bool operator==(const Hello&) const = default;
};

namespace control {

inline constexpr std::string_view hello_kind = "hello";
inline constexpr std::string_view report_kind = "status";

/// A non-negative integer, up to the largest T.
template <class T>
[[nodiscard]] T count_in(const boost::json::object& object, std::string_view name) {
    const auto& value = field_of(object, name);
    std::uint64_t number = 0;
    if (const auto* const signed_number = value.if_int64();
        signed_number != nullptr && *signed_number >= 0) {
        number = static_cast<std::uint64_t>(*signed_number);
    } else if (const auto* const unsigned_number = value.if_uint64()) {
        number = *unsigned_number;
    } else {
        malformed(concat("\"", name, "\" is not a non-negative integer"));
    }
    if (number > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) {
        malformed(concat("\"", name, "\" is too large"));
    }
    return static_cast<T>(number);
}

[[nodiscard]] inline boost::json::object object_in(std::string_view text) {
    try {
        auto value = json::parse(text);
        if (auto* const object = value.if_object()) {
            return std::move(*object);
        }
    } catch (const std::exception& error) {
        malformed(error.what());
    }
    malformed("not a JSON object");
}

[[nodiscard]] inline Phase phase_in(const boost::json::object& object) {
    const auto phase = phase_names.parse(text_in(object, "phase"));
    if (!phase) {
        malformed("\"phase\" is unknown");
    }
    return *phase;
}

[[nodiscard]] inline std::string frame_of(const boost::json::object& message) {
    const std::string text = json::serialize(message);
    std::string frame;
    frame.reserve(4 + text.size());
    for (unsigned shift = 0; shift < 32; shift += 8) {
        frame.push_back(static_cast<char>((text.size() >> shift) & 0xffU));
    }
    return frame + text;
}

/// Converts the texts in `value` to UTF-8 of at most `limit` bytes each.
inline void clean_texts(boost::json::value& value, std::size_t limit) {
    if (auto* const text = value.if_string()) {
        *text = json::clean_text(*text, limit);
    } else if (auto* const object = value.if_object()) {
        for (auto& item : *object) {
            clean_texts(item.value(), limit);
        }
    } else if (auto* const array = value.if_array()) {
        for (auto& item : *array) {
            clean_texts(item, limit);
        }
    }
}

} // namespace control

/// Returns the frame of a message.
[[nodiscard]] inline std::string encode(const Hello& hello) {
    return control::frame_of({{"kind", control::hello_kind},
                              {"rank", hello.rank},
                              {"size", hello.size},
                              {"attempt", hello.attempt},
                              {"pid", hello.pid},
                              {"host", json::clean_text(hello.host, 255)}});
}

[[nodiscard]] inline std::string encode(const RankReport& report) {
    boost::json::object status{{"kind", control::report_kind},
                               {"rank", report.rank},
                               {"phase", phase_names[report.phase]},
                               {"progress", report.progress},
                               {"steps", report.steps},
                               {"collectives", report.collectives},
                               {"waiting_in", json::clean_text(report.waiting_in, 255)},
                               {"cpu_s", report.cpu_s},
                               {"reading", json::clean_text(report.reading, 255)}};
    if (report.output_blocked) {
        status["output_blocked"] = true;
    }
    if (report.stopped) {
        status["stopped"] = true;
    }
    return control::frame_of(status);
}

/// Returns the frame of a RankEvent or a DriverEvent. Invalid UTF-8 bytes become '?', and texts are
/// cut to fit the frame. Throws LaunchError [RT-L9] for numbers that the other side rejects.
template <class... Events>
[[nodiscard]] std::string encode(const std::variant<Events...>& event) {
    const std::string_view kind = control::name_of(event);
    boost::json::value message =
        std::visit([](const auto& one) { return control::fields_of(one); }, event);
    message.get_object()["kind"] = kind;
    for (std::size_t limit = max_frame; limit > 0; limit /= 4) {
        control::clean_texts(message, limit);
        std::string frame = control::frame_of(message.get_object());
        if (frame.size() <= 4 + max_frame) {
            return frame;
        }
    }
    control::malformed(control::concat('"', kind, "\" has too many fields for one frame"));
}

using FromRank = std::variant<Hello, RankReport, RankEvent>;

/// Parses a rank's frame. Throws LaunchError [RT-L9].
[[nodiscard]] inline FromRank parse_from_rank(std::string_view text) {
    boost::json::object object = control::object_in(text);
    const std::string kind(control::text_in(object, "kind"));
    const auto check_size = [&](std::size_t fields) {
        if (object.size() != fields) {
            control::malformed("it has unknown fields");
        }
    };
    if (kind == control::hello_kind) {
        Hello hello{.rank = control::count_in<int>(object, "rank"),
                    .size = control::count_in<int>(object, "size"),
                    .attempt = control::count_in<int>(object, "attempt"),
                    .pid = control::count_in<int>(object, "pid"),
                    .host = std::string(control::text_in(object, "host"))};
        check_size(6);
        return hello;
    }
    if (kind == control::report_kind) {
        RankReport report{
            .rank = control::count_in<int>(object, "rank"),
            .phase = control::phase_in(object),
            .progress = control::count_in<std::uint64_t>(object, "progress"),
            .steps = control::count_in<std::uint64_t>(object, "steps"),
            .collectives = control::count_in<std::uint64_t>(object, "collectives"),
            .waiting_in = std::string(control::text_in(object, "waiting_in")),
            .reading = std::string(control::text_in(object, "reading")),
        };
        if (!control::parse(control::field_of(object, "cpu_s"), report.cpu_s)) {
            control::malformed("\"cpu_s\" is not a time in seconds");
        }
        std::size_t fields = 9;
        const auto flag = [&](std::string_view name) {
            const auto* const value = object.if_contains(name);
            if (value != nullptr && !value->is_bool()) {
                control::malformed(control::concat('"', name, "\" is not a boolean"));
            }
            fields += value != nullptr ? 1 : 0;
            return value != nullptr && value->get_bool();
        };
        report.output_blocked = flag("output_blocked");
        report.stopped = flag("stopped");
        check_size(fields);
        return report;
    }
    return control::parse_event_of<RankEvent, DriverEvent>(std::move(object));
}

/// Parses a frame of the driver. Throws LaunchError [RT-L9].
[[nodiscard]] inline DriverEvent parse_from_driver(std::string_view text) {
    return control::parse_event_of<DriverEvent, RankEvent>(control::object_in(text));
}

} // namespace rtrain::launch
