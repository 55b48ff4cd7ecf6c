// SPDX-License-Identifier: Apache-2.0
/// @file
/// EventLog: all inputs of a search's controller, in order, one JSON object per line. The state of
/// a search is a function of these events, so replaying them restores the search
/// (tune/controller/controller.hpp). The file only grows; a line cut by a crash is ignored.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/growing_file.hpp>

#include <boost/json/object.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::tune {

class EventLog {
public:
    static constexpr const char* file_name = "tuner_events.jsonl";

    /// Passes the events in a search's directory from byte `begin` on to `use`, oldest first.
    /// Returns the position of the next event. Throws StorageError [RT-U100] for a damaged line; an
    /// incomplete last line is ignored.
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
                throw StorageError("RT-U100",
                                   detail::concat(path.string(), " is damaged in the line at byte ",
                                                  begin, ": ", error.what(),
                                                  "; restore it from a backup, or start a new "
                                                  "search under a different name"));
            }
            use(event);
        }
        return begin;
    }

    /// Opens the file to append after its last whole line.
    void open(const std::filesystem::path& directory) {
        const auto file = directory / file_name;
        if (std::filesystem::exists(file)) {
            const std::string text = storage::read_file(file);
            std::filesystem::resize_file(file, text.rfind('\n') + 1); // npos + 1 is 0
        }
        file_.emplace(file);
    }

    /// Adds an event. It is written to the file by the next flush(), so that other processes and
    /// files never have a newer state of the search than the file.
    void add(const boost::json::object& event) {
        waiting_ += json::serialize(event);
        waiting_ += '\n';
        constexpr std::size_t most = 1 << 20;
        if (waiting_.size() > most) {
            flush();
        }
    }

    /// After this, the events survive the death of this process.
    void flush() {
        if (file_ && !waiting_.empty()) {
            file_->append(waiting_);
            waiting_.clear();
        }
    }

    /// After this, they survive the death of the machine.
    void sync() {
        flush();
        if (file_) {
            file_->sync();
        }
    }

private:
    std::optional<storage::GrowingFile> file_; ///< a failed append leaves no partial line
    std::string waiting_;
};

} // namespace rtrain::tune
