// SPDX-License-Identifier: Apache-2.0
/// @file
/// W&B's offline file format, compared with wandb 0.31.0 (tests/track/offline/wandb_test.py):
/// protocol buffers in LevelDB log records
/// (https://github.com/google/leveldb/blob/main/doc/log_format.md), but with a plain CRC-32. Fields
/// are those of wandb_internal.proto. Private to W&B; included by wandb_definitions.hpp only.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/base/text/clean_text.hpp>
#include <rtrain/format/protobuf.hpp>
#include <rtrain/track/lines/metrics.hpp>
#include <rtrain/track/lines/reported_image.hpp>

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::track::wandb {

using protobuf::Message;

inline constexpr std::string_view file_begin{":W&B\xe1\xbe\x00", 7};

/// The field number of a Record's content.
enum class Kind : unsigned { history = 2, summary = 3, run = 17, exit = 18, header = 21 };

/// A Record, the `number`th of its file.
[[nodiscard]] inline std::string record(std::uint64_t number, Kind kind, const Message& content) {
    return Message().number(1, number).bytes(static_cast<unsigned>(kind), content.text()).text();
}

/// Splits a record at offset `at` of a file into parts, none of which crosses a block boundary.
[[nodiscard]] inline std::string in_parts(std::string_view record, std::uint64_t at) {
    constexpr std::size_t block = std::size_t{1} << 15;
    constexpr std::size_t head = 7;
    enum Type : char { whole = 1, first, middle, last };
    std::string text;
    bool is_first = true;
    do {
        std::size_t room = block - (at + text.size()) % block;
        if (room < head) {
            text.append(room, '\0');
            room = block;
        }
        const std::string_view part = record.substr(0, room - head);
        record.remove_prefix(part.size());
        const Type type = record.empty() ? (is_first ? whole : last) : (is_first ? first : middle);
        is_first = false;
        std::string typed(1, type);
        typed += part;
        const auto sum = ::crc32_z(0, reinterpret_cast<const Bytef*>(typed.data()), typed.size());
        for (const unsigned shift : {0U, 8U, 16U, 24U}) {
            text += static_cast<char>(sum >> shift & 0xffU);
        }
        text += static_cast<char>(part.size() & 0xffU);
        text += static_cast<char>(part.size() >> 8U);
        text += typed;
    } while (!record.empty());
    return text;
}

/// Readable by W&B 0.13 and later.
[[nodiscard]] inline Message header(std::string_view writer) {
    const auto versions = Message().bytes(1, writer).bytes(2, "0.13.0");
    return Message().bytes(1, versions.text());
}

/// The run's description for W&B. Texts are UTF-8.
struct RunShown {
    std::string id;
    std::string entity;
    std::string project;
    std::string group;
    std::string name;
    std::string notes;
    std::vector<std::string> tags;
    std::string host;
    std::int64_t start_s = 0;
};

[[nodiscard]] inline Message run(const RunShown& shown, const Config& config) {
    Message settings;
    for (const auto& item : config) {
        const std::string key = json::clean_text(item.key(), item.key().size());
        settings.bytes(1, Message().bytes(1, key).bytes(16, json::serialize(item.value())).text());
    }
    Message run;
    const auto add = [&run](unsigned field, const std::string& text) {
        if (!text.empty()) {
            run.bytes(field, text);
        }
    };
    add(1, shown.id);
    add(2, shown.entity);
    add(3, shown.project);
    add(4, settings.text());
    add(6, shown.group);
    add(8, shown.name);
    add(9, shown.notes);
    for (const std::string& tag : shown.tags) {
        run.bytes(10, tag);
    }
    add(13, shown.host);
    return run.bytes(17, Message().number(1, static_cast<std::uint64_t>(shown.start_s)).text());
}

/// A named value of a history or a summary; `value` is JSON.
[[nodiscard]] inline std::string item(std::string_view name, std::string_view value) {
    return Message().bytes(2, name).bytes(16, value).text();
}

/// One line of the history; `items` are its fields of item().
[[nodiscard]] inline Message history(Message items, std::int64_t number) {
    return items.bytes(2, Message().number(1, static_cast<std::uint64_t>(number)).text());
}

/// The latest values, from which W&B's tables are made.
[[nodiscard]] inline Message summary(const std::map<std::string, std::string>& values) {
    Message items;
    for (const auto& [name, value] : values) {
        items.bytes(1, item(name, value));
    }
    return items;
}

/// The end of a run that took `seconds`.
[[nodiscard]] inline Message ending(bool has_failed, double seconds) {
    return Message()
        .number(1, std::uint64_t{has_failed})
        .number(2, static_cast<std::uint64_t>(seconds));
}

/// The run's file in W&B's directory, which `wandb sync` searches for.
[[nodiscard]] inline std::filesystem::path file_of(const RunShown& run) {
    const std::time_t start = run.start_s;
    std::tm parts{};
    char time[32] = {};
    std::strftime(time, sizeof time, "%Y%m%d_%H%M%S", gmtime_r(&start, &parts));
    return std::filesystem::path(rtrain::detail::concat("offline-run-", time, '-', run.id)) /
           rtrain::detail::concat("run-", run.id, ".wandb");
}

/// Suffixes of the files in which `wandb sync` records that it has uploaded a run.
inline constexpr const char* upload_marks[] = {".synced", ".syncstate"};

/// A number as W&B's own programs write it, with names for NaN and infinities.
[[nodiscard]] inline std::string number_text(double number) {
    return std::isfinite(number) ? json::serialize(boost::json::value(number))
                                 : std::string(number_or_name(number).get_string());
}

/// Calls `visit(name, value)` for each metric of a line that W&B shows, and then for its number and
/// times; `value` is JSON. Omits images and names that W&B reserves.
template <class Visit>
void visit_items(const Line& line, double start_s, Visit&& visit) {
    visit_metrics(line, [&](const std::string& name, const boost::json::value& metric) {
        constexpr std::string_view taken[] = {"_step", "_timestamp", "_runtime", "_wandb"};
        if (is_image(metric) || std::ranges::find(taken, name) != std::end(taken)) {
            return;
        }
        const auto number = json::number(metric);
        visit(name, number ? number_text(*number) : json::serialize(metric));
    });
    visit("_step", std::to_string(line.number));
    visit("_timestamp", number_text(line.time_s));
    visit("_runtime", number_text(std::max(0.0, line.time_s - start_s)));
}

} // namespace rtrain::track::wandb
