// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads the lines of a result.json, as far as possible.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/plain_text.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/storage/file/file.hpp>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::track {

inline constexpr const char* iteration_field = "training_iteration";
inline constexpr const char* step_field = "step"; ///< in lines of steps.jsonl
/// Time shares of the ranks since the previous report; a user metric of that name takes precedence.
inline constexpr const char* time_field = "time";
/// Findings in the ranks' data since then, if any; a user metric of that name takes precedence.
inline constexpr const char* data_field = "data";

[[nodiscard]] inline std::int64_t number_of(const Config& report) {
    return report.at(iteration_field).to_number<std::int64_t>();
}

/// False if the report has no valid iteration number, such as metrics that another program has
/// written.
[[nodiscard]] inline bool has_number(const Config& report) {
    constexpr std::int64_t most = std::int64_t{1} << 62;
    const auto* const number = report.if_contains(iteration_field);
    return number != nullptr && number->is_int64() && 0 <= number->get_int64() &&
           number->get_int64() <= most;
}

/// Throws ConfigError [RT-C75] for a name that files, trackers and terminals cannot show.
inline void require_metric_name(std::string_view name) {
    if (name.empty() || !checkpoint::is_plain_text(name)) {
        throw ConfigError("RT-C75",
                          rtrain::detail::concat("a metric has the name \"", name, "\", which is ",
                                                 name.empty() ? "empty" : "not plain text",
                                                 "; name metrics with UTF-8 text on one line"));
    }
}

/// Checks all names of a report, including those of nested objects.
inline void require_metric_names(const Config& metrics) {
    for (const auto& item : metrics) {
        require_metric_name(item.key());
        if (const auto* const inner = item.value().if_object()) {
            require_metric_names(*inner);
        }
    }
}

struct ReportLines {
    std::vector<Config> reports; ///< the readable ones, oldest first
    std::string damage;          ///< the first unreadable line and the reason; empty: none
};

/// Parses the text of a result.json. A crash can truncate or damage lines that are not durable yet,
/// those after report number `durable`: that is not damage, but the first unreadable line and all
/// after it are omitted.
[[nodiscard]] inline ReportLines read_reports(std::string_view text, std::int64_t durable) {
    ReportLines found;
    std::vector<Config> behind; // after the first unreadable line
    std::string first;
    std::int64_t line = 0;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = text.find('\n', begin);
        if (end == std::string_view::npos) {
            break;
        }
        ++line;
        try {
            Config report = json::parse(text.substr(begin, end - begin)).as_object();
            (void)number_of(report);
            (first.empty() ? found.reports : behind).push_back(std::move(report));
        } catch (const std::bad_alloc&) { // not the file's fault
            throw;
        } catch (const std::exception& error) {
            first =
                first.empty() ? rtrain::detail::concat("line ", line, ": ", error.what()) : first;
        }
        begin = end + 1;
    }
    for (Config& report : behind) {
        if (number_of(report) <= durable) {
            found.damage = first;
            found.reports.push_back(std::move(report));
        }
    }
    return found;
}

/// Reads a file; empty if it does not exist.
[[nodiscard]] inline ReportLines read_results(const std::filesystem::path& file,
                                              std::int64_t durable) {
    return std::filesystem::exists(file) ? read_reports(storage::read_file(file), durable)
                                         : ReportLines{};
}

/// Parses `text` and rejects damage; `file` is used in messages. Throws StorageError [RT-S5] if a
/// line is damaged.
[[nodiscard]] inline std::vector<Config>
parse_results(std::string_view text, const std::string& file, std::int64_t durable) {
    ReportLines found = read_reports(text, durable);
    if (!found.damage.empty()) {
        throw StorageError("RT-S5",
                           rtrain::detail::concat(file, " is damaged in ", found.damage,
                                                  "; start the run again to set the file aside "
                                                  "and keep its readable lines"));
    }
    return std::move(found.reports);
}

} // namespace rtrain::track
