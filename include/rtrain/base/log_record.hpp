// SPDX-License-Identifier: Apache-2.0
/// @file
/// A log line as a JSON object: time, rank, level, message. Cost tier 0: std only.
#pragma once

#include <rtrain/base/name_table.hpp>
#include <rtrain/base/text/utf8.hpp>
#include <rtrain/base/text/visible_text.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>

namespace rtrain::console {

/// Log levels: `info` is expected, a `warning` is a problem or an option without effect, an `error`
/// ends a rank or the run.
enum class Level : unsigned char { info, warning, error };

inline constexpr auto level_names = rtrain::detail::name_table<Level>(
    {{Level::info, "info"}, {Level::warning, "warning"}, {Level::error, "error"}});

/// Returns the current UTC time, for example 2026-11-23T09:31:24.120Z.
[[nodiscard]] inline std::string time_of_record() {
    using namespace std::chrono;
    const auto since_1970 =
        duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
    const auto seconds = static_cast<std::time_t>(since_1970 / 1000);
    std::tm parts{};
    std::array<char, 32> date{};
    const std::size_t length =
        std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", ::gmtime_r(&seconds, &parts));
    std::array<char, 8> rest{};
    std::snprintf(rest.data(), rest.size(), ".%03dZ", static_cast<int>(since_1970 % 1000));
    return std::string(date.data(), length) + rest.data();
}

/// Returns a quoted JSON string. Each invalid UTF-8 byte becomes '?'.
[[nodiscard]] inline std::string json_text(std::string_view text) {
    std::string json = "\"";
    while (!text.empty()) {
        const std::size_t length = rtrain::detail::utf8_length(text);
        const char32_t code =
            length == 0 ? U'?' : rtrain::detail::code_point(text.substr(0, length));
        if (length == 0) {
            json += '?';
        } else if (rtrain::detail::is_control(code)) {
            std::array<char, 8> escape{};
            std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(code));
            json += escape.data();
        } else {
            json += code == '"' || code == '\\' ? "\\" : "";
            json += text.substr(0, length);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return json + '"';
}

inline constexpr std::string_view begin_of_record = "{\"time\":\"";

/// `rank`: -1 for a process that is not a rank. `more`: further members, each preceded by a comma.
[[nodiscard]] inline std::string record(int rank, Level level, std::string_view message,
                                        std::string_view more = {}) {
    std::string line(begin_of_record);
    line += time_of_record() + "\",\"rank\":" + (rank < 0 ? "null" : std::to_string(rank)) +
            ",\"level\":\"";
    line += level_names[level];
    line += "\",\"message\":" + json_text(message);
    line += more;
    return line + '}';
}

} // namespace rtrain::console
