// SPDX-License-Identifier: Apache-2.0
/// @file
/// EventLog: all that a search's controller was told, in order, one JSON object a line. A search is
/// a function of these events, so whoever hears them again is where the search was
/// (tune/controller.hpp). The file only grows; a line that a crash has cut is as if never written.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/storage/file.hpp>

#include <boost/json/object.hpp>

#include <cstddef>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace rtrain::tune {

class EventLog {
public:
    static constexpr const char* file_name = "tuner_events.jsonl";

    /// The events in a search's directory, oldest first; none when there is no file. Throws
    /// StorageError [RT-U100] where a line is damaged that others follow.
    [[nodiscard]] static std::vector<boost::json::object>
    read(const std::filesystem::path& directory) {
        std::vector<boost::json::object> events;
        const auto file = directory / file_name;
        if (!std::filesystem::exists(file)) {
            return events;
        }
        const std::string text = storage::read_file(file);
        for (std::size_t begin = 0; begin < text.size();) {
            const std::size_t end = text.find('\n', begin);
            if (end == std::string::npos) {
                break;
            }
            try {
                events.push_back(
                    json::parse(std::string_view(text).substr(begin, end - begin)).as_object());
            } catch (const std::exception& error) {
                throw StorageError(
                    "RT-U100", detail::concat(file.string(), " is damaged in line ",
                                              events.size() + 1, ": ", error.what(),
                                              "; restore it from a copy, or begin the search anew "
                                              "under another name"));
            }
            begin = end + 1;
        }
        return events;
    }

    /// Appends to what is there, behind the last whole line.
    void open(const std::filesystem::path& directory) {
        const auto file = directory / file_name;
        if (std::filesystem::exists(file)) {
            const std::string text = storage::read_file(file);
            std::filesystem::resize_file(file, text.rfind('\n') + 1); // npos + 1 is 0
        }
        file_.emplace(file, storage::OutputFile::Mode::append);
    }

    [[nodiscard]] bool is_open() const noexcept { return file_.has_value(); }

    /// Takes an event. It is in the file behind the next flush(), so that what other processes and
    /// files know of a search never runs ahead of it.
    void add(const boost::json::object& event) {
        waiting_ += json::serialize(event);
        waiting_ += '\n';
        constexpr std::size_t most = 1 << 20;
        if (waiting_.size() > most) {
            flush();
        }
    }

    /// Survives the death of this process from here on.
    void flush() {
        if (file_ && !waiting_.empty()) {
            file_->write(waiting_);
            waiting_.clear();
        }
    }

    /// Survives the machine's.
    void sync() {
        flush();
        if (file_) {
            file_->sync();
        }
    }

private:
    std::optional<storage::OutputFile> file_;
    std::string waiting_;
};

} // namespace rtrain::tune
