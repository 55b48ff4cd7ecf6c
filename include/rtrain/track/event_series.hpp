// SPDX-License-Identifier: Apache-2.0
/// @file
/// EventSeries: a directory of event files, one for each time that their run was taken up. Each
/// begins with a START event, behind which readers forget what it makes void.
#pragma once

#include <rtrain/base/wall_clock.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/storage/growing_file.hpp>
#include <rtrain/track/event_file.hpp>

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

    /// Begins a file, in which steps behind `last` are void; returns up to where the files before
    /// have the others. A series that begins has `first` as its first event, of step 0.
    std::int64_t rewind(std::int64_t last, const std::optional<event::Message>& first = {}) {
        const std::int64_t newest = newest_file();
        file_.reset();
        // The START event vouches for the files before, also after a power failure.
        are_durable_ = are_durable_ && (newest == 0 || has_synced(path_of(newest)));
        std::optional<std::int64_t> steps;
        for (std::int64_t number = newest; number > 0 && !steps; --number) {
            steps = steps_up_to(path_of(number));
        }
        last = are_durable_ ? std::min(last, steps.value_or(0)) : 0;
        const double now = rtrain::detail::seconds_since_1970();
        storage::create_directories(directory_);
        std::string head = event::file_version(now) + event::start(now, last + 1);
        if (first && newest == 0) { // once more would be shown once more
            head += event::record(event::at(now, 0).bytes(5, first->text()));
        }
        const auto path = path_of(newest + 1);
        storage::replace_file(path, head); // a power failure brings back nothing that is void
        file_ = std::make_unique<storage::GrowingFile>(path);
        are_durable_ = true;
        return last;
    }

    /// The summary is there as a whole or not at all.
    void append(double time_s, std::int64_t step, const event::Message& summary) {
        file_->append(event::record(event::at(time_s, step).bytes(5, summary.text())));
    }

private:
    static constexpr std::string_view name_begin = "events.out.tfevents.";
    static constexpr std::string_view name_end = ".rtrain";

    /// Readers take files in the order of their names.
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

    /// 0: there is none.
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

    /// Up to where a file and those before it have steps; none when no START event tells.
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
    bool are_durable_ = true; ///< false: what the files have is lost, as far as one knows
};

} // namespace rtrain::track
