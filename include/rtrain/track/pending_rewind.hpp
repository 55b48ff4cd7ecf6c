// SPDX-License-Identifier: Apache-2.0
/// @file
/// PendingRewind: a note in the run's directory that trackers have to forget reports. Training does
/// not wait for them, so a process may be killed when the run has gone on and a tracker still shows
/// what does not count. The next start then has it forget that, too.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/storage/file.hpp>

#include <boost/json/object.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <limits>
#include <mutex>
#include <string>

namespace rtrain::track {

class PendingRewind {
public:
    /// The run was taken up behind `position`, and `trackers` are to rewind: returns to where.
    [[nodiscard]] Position begin(const std::filesystem::path& directory, Position position,
                                 std::size_t trackers) {
        const std::scoped_lock lock(mutex_);
        file_ = directory / trackers_file;
        ++start_;
        left_ = trackers;
        const Position noted = noted_in(directory);
        position.iteration = std::min(position.iteration, noted.iteration);
        position.step = std::min(position.step, noted.step);
        note({{"pending", true}, {"iteration", position.iteration}, {"step", position.step}});
        return position;
    }

    /// Which begin() was the last.
    [[nodiscard]] std::uint64_t start() const {
        const std::scoped_lock lock(mutex_);
        return start_;
    }

    /// One more has rewound as the begin() of number `start` said.
    void rewound(std::uint64_t start) noexcept {
        const std::scoped_lock lock(mutex_);
        if (start == start_ && --left_ == 0) {
            note({{"pending", false}});
        }
    }

    /// What trackers may have kept that does not count any more lies behind it.
    [[nodiscard]] static Position noted_in(const std::filesystem::path& directory) {
        constexpr auto any = std::numeric_limits<std::int64_t>::max();
        const auto file = directory / trackers_file;
        if (!std::filesystem::exists(file)) {
            return {any, any};
        }
        try {
            const auto noted = json::parse(storage::read_file(file)).as_object();
            return noted.at("pending").as_bool()
                       ? Position{noted.at("iteration").as_int64(), noted.at("step").as_int64()}
                       : Position{any, any};
        } catch (const std::exception&) { // damaged
            return {};
        }
    }

private:
    void note(const boost::json::object& what) const noexcept {
        try {
            storage::replace_file(file_, json::serialize(what) + "\n");
        } catch (const std::exception& error) {
            console::warn("%s was not written, so trackers may show reports that do not count if "
                          "this process is killed: %s",
                          trackers_file, error.what());
        }
    }

    mutable std::mutex mutex_;
    std::filesystem::path file_;
    std::uint64_t start_ = 0;
    std::size_t left_ = 0;
};

} // namespace rtrain::track
