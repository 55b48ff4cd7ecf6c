// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages between the Python module rtrain and the parent of its rank, in the frames of the
/// control channel (docs/python.md). They may come from different builds: the first message has the
/// version of the protocol. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/launch/control/event_text.hpp>
#include <rtrain/launch/control/message.hpp>

#include <boost/json/object.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace rtrain::program {

/// Changes with each change of the messages.
inline constexpr std::int64_t module_protocol = 3;
/// The number of the rank's end of the socket, in its environment.
inline constexpr const char* module_variable = "RTRAIN_MODULE";
/// Largest JSON text of a message.
inline constexpr std::size_t max_module_message = std::size_t{512} << 10;

namespace module {

/// The first message; the answer is welcome().
struct Hello {
    std::int64_t protocol = 0;
    std::string version{}; ///< of the module
};
/// A call of report().
struct Report {
    boost::json::object metrics{};
    std::string directory{};  ///< empty: no checkpoint
    std::string checkpoint{}; ///< its wished name
    boost::json::object metadata{};
    bool in_background = false; ///< CheckpointUploadMode::async
};
/// A call of another function, in which the ranks meet.
struct Meet {
    std::string function{};
    std::string text{};
};
/// Metrics of a step; without an answer.
struct Log {
    boost::json::object metrics{}; ///< numbers
};
using Request = std::variant<Hello, Report, Meet, Log>;

/// Throws LaunchError [RT-L9].
[[nodiscard]] inline Request parse(std::string_view text) {
    namespace control = launch::control;
    const boost::json::object body = control::object_in(text);
    const std::string kind(control::text_in(body, "kind"));
    std::size_t fields = 1;
    const auto read = [&](std::string_view name, auto& value) {
        control::parse_field(kind, body, name, value);
        ++fields;
    };
    Request request;
    if (kind == "hello") {
        Hello& hello = request.emplace<Hello>();
        read("protocol", hello.protocol);
        read("version", hello.version);
        return request; // another version may have more
    }
    if (kind == "report") {
        Report& report = request.emplace<Report>();
        read("metrics", report.metrics);
        read("directory", report.directory);
        read("checkpoint", report.checkpoint);
        read("metadata", report.metadata);
        read("in_background", report.in_background);
    } else if (kind == "meet") {
        Meet& meet = request.emplace<Meet>();
        read("function", meet.function);
        read("text", meet.text);
    } else if (kind == "log") {
        read("metrics", request.emplace<Log>().metrics);
    } else {
        control::malformed("its \"kind\" is unknown");
    }
    if (fields != body.size()) {
        control::malformed("it has unknown fields");
    }
    return request;
}

[[nodiscard]] inline boost::json::object error(std::string_view code, std::string_view message) {
    return {{"kind", "error"}, {"code", code}, {"message", message}};
}

} // namespace module
} // namespace rtrain::program
