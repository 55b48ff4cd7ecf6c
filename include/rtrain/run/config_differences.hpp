// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether a start continues the run of the same name, by what an earlier start has left.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/storage/filesystem.hpp>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace rtrain::detail {

/// Adds the differences, key by key: `"optimizer/lr" was 0.1 and is 0.2`.
inline void add_differences(std::vector<std::string>& found, const std::string& key,
                            const boost::json::value* was, const boost::json::value* is) {
    if (was != nullptr && is != nullptr && was->is_object() && is->is_object()) {
        const auto inside = [&](std::string_view name) {
            return key.empty() ? std::string(name) : concat(key, '/', name);
        };
        for (const auto& item : was->get_object()) {
            add_differences(found, inside(item.key()), &item.value(),
                            is->get_object().if_contains(item.key()));
        }
        for (const auto& item : is->get_object()) {
            if (!was->get_object().contains(item.key())) {
                add_differences(found, inside(item.key()), nullptr, &item.value());
            }
        }
        return;
    }
    const auto text = [](const boost::json::value* value) {
        constexpr std::size_t longest = 200;
        return value == nullptr     ? "unset"
               : value->is_double() ? concat(value->get_double())
                                    : json::serialize(*value).substr(0, longest);
    };
    if (was == nullptr || is == nullptr || *was != *is) {
        found.push_back(concat('"', key, "\" was ", text(was), " and is ", text(is)));
    }
}

/// True if there is a report or a checkpoint; otherwise there is nothing to resume.
[[nodiscard]] inline bool has_left_something(const RunDirectory& directory) {
    std::error_code none;
    const auto reports =
        std::filesystem::file_size(directory.log_directory() / track::results_file, none);
    return (!none && reports > 0) ||
           directory.location().filesystem.exists(directory.path_of(track::latest_file));
}

/// Throws ConfigError [RT-C50] if the start differs in something from the run in the directory.
inline void require_no_differences(const RunDirectory& directory,
                                   const std::vector<std::string>& found) {
    if (found.empty()) {
        return;
    }
    constexpr std::size_t most = 10;
    std::string list = found.front();
    for (std::size_t i = 1; i < found.size() && i < most; ++i) {
        list += "; " + found[i];
    }
    if (found.size() > most) {
        list += concat("; and ", found.size() - most, " more");
    }
    throw ConfigError("RT-C50",
                      concat("the run \"", directory.name(), "\" in ", directory.uri(),
                             " is a different run: ", list,
                             "; use a different run name, or set RunConfig::resume: Resume::never "
                             "starts over and keeps the old directory, Resume::always resumes with "
                             "the changed options"));
}

} // namespace rtrain::detail
