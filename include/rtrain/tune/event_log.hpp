// SPDX-License-Identifier: Apache-2.0
/// @file
/// EventLog: all that a search's controller was told, in order, one JSON object a line. A search is
/// a function of these events, so whoever hears them again is where the search was
/// (tune/controller.hpp). The file only grows; a line that a crash has cut is as if never written.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/storage/growing_file.hpp>

#include <boost/json/object.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace rtrain::tune {

class EventLog {
public:
    static constexpr const char* file_name = "tuner_events.jsonl";

    /// Tells `use` of the events in a search's directory from the byte `begin` on, oldest first.
    /// Returns where the next one will begin. Throws StorageError [RT-U100] where a line is damaged
    /// that others follow.
    template <class Use>
    static std::uint64_t read(const std::filesystem::path& directory, std::uint64_t begin,
                              Use&& use) {
        const auto path = directory / file_name;
        if (!std::filesystem::exists(path)) {
            return begin;
        }
        std::ifstream file = storage::open_stream(path);
        file.seekg(static_cast<std::streamoff>(begin));
        for (std::string line; std::getline(file, line) && !file.eof(); begin += line.size() + 1) {
            boost::json::object event;
            try {
                event = json::parse(line).as_object();
            } catch (const std::exception& error) {
                throw StorageError(
                    "RT-U100", detail::concat(path.string(), " is damaged in the line at byte ",
                                              begin, ": ", error.what(),
                                              "; restore it from a copy, or begin the search anew "
                                              "under another name"));
            }
            use(event);
        }
        return begin;
    }

    /// Appends to what is there, behind the last whole line.
    void open(const std::filesystem::path& directory) {
        const auto file = directory / file_name;
        if (std::filesystem::exists(file)) {
            const std::string text = storage::read_file(file);
            std::filesystem::resize_file(file, text.rfind('\n') + 1); // npos + 1 is 0
        }
        file_.emplace(file);
    }

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
            file_->append(waiting_);
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
    std::optional<storage::GrowingFile> file_; ///< an append that fails leaves no part of itself
    std::string waiting_;
};

} // namespace rtrain::tune
