// SPDX-License-Identifier: Apache-2.0
/// @file
/// JsonLines: the reports of a run, one line of JSON each, without the configuration that repeats
/// in result.json.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/storage/growing_file.hpp>
#include <rtrain/track/log_reader.hpp>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::track {

class JsonLines {
public:
    /// `file` is relative to the run's directory.
    explicit JsonLines(std::string file = "metrics.jsonl") : file_(std::move(file)) {}

    [[nodiscard]] std::string name() const { return file_; }
    [[nodiscard]] std::string output() const { return file_; }

    void start(const RunInfo& info) {
        path_ = info.directory / file_;
        storage::create_directories(path_.parent_path());
    }

    Position rewind(Position position) {
        output_.reset();
        const std::int64_t behind = std::exchange(position.iteration, 0);
        std::uint64_t kept = 0;
        if (std::filesystem::exists(path_)) {
            LogReader lines(path_);
            while (const auto text = lines.line()) {
                const auto number = number_in(*text);
                if (!number || *number > behind) {
                    break;
                }
                position.iteration = *number;
                kept += text->size() + 1;
                lines.pass();
            }
            storage::cut_off(path_, kept);
        }
        output_ = std::make_unique<storage::GrowingFile>(path_);
        return position;
    }

    void write(const Line& line) {
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

    void finish() { output_.reset(); }

private:
    /// Of a line that a process wrote which may have been killed, or no disk was left for.
    static std::optional<std::int64_t> number_in(std::string_view text) {
        try {
            return number_of(json::parse(text).as_object());
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception&) {
            return std::nullopt;
        }
    }

    std::string file_;
    std::filesystem::path path_;
    std::unique_ptr<storage::GrowingFile> output_;
};

} // namespace rtrain::track
