// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door json_lines.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/growing_file.hpp>
#include <rtrain/track/files/json_lines.hpp>
#include <rtrain/track/lines/log_reader.hpp>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

namespace rtrain::track {

namespace internal {

/// The iteration of a line; none if a killed process or a full disk left it incomplete.
RTRAIN_DOOR std::optional<std::int64_t> iteration_in(std::string_view text) {
    try {
        return number_of(json::parse(text).as_object());
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

} // namespace internal

RTRAIN_DOOR void JsonLines::start(const RunInfo& info) {
    path_ = info.directory / file_;
    storage::create_directories(path_.parent_path());
}

RTRAIN_DOOR Position JsonLines::rewind(Position position) {
    output_.reset();
    const std::int64_t behind = std::exchange(position.iteration, 0);
    std::uint64_t kept = 0;
    if (std::filesystem::exists(path_)) {
        LogReader lines(path_);
        while (const auto text = lines.line()) {
            const auto number = internal::iteration_in(*text);
            if (!number || *number > behind) {
                break;
            }
            position.iteration = *number;
            kept += text->size() + 1;
            lines.pass();
        }
        storage::cut_off(path_, kept);
    }
    output_ = std::make_shared<storage::GrowingFile>(path_);
    return position;
}

RTRAIN_DOOR void JsonLines::write(const Line& line) {
    if (line.is_step) {
        return;
    }
    Config shown;
    for (const auto& item : line.values) {
        if (item.key() != "config") {
            shown.insert(item);
        }
    }
    output_->append(json::serialize(shown) + "\n");
}

} // namespace rtrain::track
