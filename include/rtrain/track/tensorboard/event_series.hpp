// SPDX-License-Identifier: Apache-2.0
/// @file
/// EventSeries: a directory of event files, one for each start of their run. Each begins with a
/// START event, at which readers discard superseded steps.
#pragma once

#include <rtrain/base/text/wall_clock.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/growing_file.hpp>
#include <rtrain/track/tensorboard/event_file.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::track {

class EventSeries {
public:
    explicit EventSeries(std::filesystem::path directory) : directory_(std::move(directory)) {}

    [[nodiscard]] bool has_begun() const { return newest_file() > 0; }
    [[nodiscard]] bool is_open() const noexcept { return file_ != nullptr; }

    /// Begins a file that supersedes the steps after `last`; returns the last step that the earlier
    /// files contain. In a new series, `first` is the first event, at step 0.
    std::int64_t rewind(std::int64_t last, const std::optional<event::Message>& first = {}) {
        const std::int64_t newest = newest_file();
        file_.reset();
        // The START event relies on the earlier files, even after a power failure.
        are_durable_ = are_durable_ && (newest == 0 || has_synced(path_of(newest)));
        std::optional<std::int64_t> steps;
        for (std::int64_t number = newest; number > 0 && !steps; --number) {
            steps = steps_up_to(path_of(number));
        }
        last = are_durable_ ? std::min(last, steps.value_or(0)) : 0;
        const double now = rtrain::detail::seconds_since_1970();
        storage::create_directories(directory_);
        std::string head = event::file_version(now) + event::start(now, last + 1);
        if (first && newest == 0) { // a repeated event would be shown twice
            head += event::record(event::at(now, 0).bytes(5, first->text()));
        }
        const auto path = path_of(newest + 1);
        storage::replace_file(path, head); // a power failure must not restore superseded events
        file_ = std::make_unique<storage::GrowingFile>(path);
        are_durable_ = true;
        return last;
    }

    /// Atomic: appends the whole summary or nothing.
    void append(double time_s, std::int64_t step, const event::Message& summary) {
        file_->append(event::record(event::at(time_s, step).bytes(5, summary.text())));
    }

private:
    static constexpr std::string_view name_begin = "events.out.tfevents.";
    static constexpr std::string_view name_end = ".rtrain";

    /// Readers sort files by name.
    [[nodiscard]] std::filesystem::path path_of(std::int64_t number) const {
        char digits[32] = {};
        std::snprintf(digits, sizeof digits, "%010lld", static_cast<long long>(number));
        return directory_ / (std::string(name_begin) + digits + std::string(name_end));
    }

    [[nodiscard]] static bool has_synced(const std::filesystem::path& file) {
        try {
            storage::GrowingFile(file).sync();
            return true;
        } catch (const StorageError&) {
            return false;
        }
    }

    /// 0: none.
    [[nodiscard]] std::int64_t newest_file() const {
        std::int64_t newest = 0;
        std::error_code none;
        for (const auto& entry : std::filesystem::directory_iterator(directory_, none)) {
            const std::string name = entry.path().filename().string();
            std::int64_t number = 0;
            if (name.starts_with(name_begin) && name.ends_with(name_end)) {
                std::from_chars(name.data() + name_begin.size(), name.data() + name.size(), number);
            }
            newest = std::max(newest, number);
        }
        return newest;
    }

    /// The last step in a file and those before it; none without a START event.
    [[nodiscard]] static std::optional<std::int64_t>
    steps_up_to(const std::filesystem::path& file) {
        std::ifstream input = storage::open_stream(file);
        std::optional<std::int64_t> steps;
        while (const auto text = event::next_event(input)) {
            const event::Seen seen = event::look_at(*text);
            if (seen.is_start) {
                steps = seen.step - 1;
            } else if (steps) {
                steps = std::max(*steps, seen.step);
            }
        }
        return steps;
    }

    std::filesystem::path directory_;
    std::unique_ptr<storage::GrowingFile> file_;
    bool are_durable_ = true; ///< false: the files' contents may be lost
};

} // namespace rtrain::track
