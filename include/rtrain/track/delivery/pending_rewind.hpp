// SPDX-License-Identifier: Apache-2.0
/// @file
/// PendingRewind: a note in the run's directory that trackers have to rewind. Training does not
/// wait for trackers: a process may be killed after the run has resumed, while a tracker still
/// shows superseded reports. The next start then repeats the rewind. The note also records how the
/// run ended, for trackers that are not notified of it.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/name_table.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/storage/file/file.hpp>

#include <boost/json/object.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>

namespace rtrain::track {

class PendingRewind {
public:
    /// The run has resumed after `position`, and `trackers` trackers must rewind: returns the
    /// target.
    [[nodiscard]] Position begin(const std::filesystem::path& directory, Position position,
                                 std::size_t trackers) {
        const std::scoped_lock lock(mutex_);
        file_ = directory / trackers_file;
        ++start_;
        left_ = trackers;
        const Position noted = noted_in(directory);
        position.iteration = std::min(position.iteration, noted.iteration);
        position.step = std::min(position.step, noted.step);
        ended_.reset();
        to_ = position;
        note();
        return position;
    }

    /// The number of the last begin().
    [[nodiscard]] std::uint64_t start() const {
        const std::scoped_lock lock(mutex_);
        return start_;
    }

    /// One tracker has completed the rewind of begin() number `start`.
    void rewound(std::uint64_t start) noexcept {
        const std::scoped_lock lock(mutex_);
        if (start == start_ && --left_ == 0) {
            to_.reset();
            note();
        }
    }

    /// This start of the run has ended.
    void ended(Ending ending) noexcept {
        const std::scoped_lock lock(mutex_);
        if (!file_.empty()) {
            ended_ = ending;
            note();
        }
    }

    /// The recorded ending of a run that is not running; none if it was killed.
    [[nodiscard]] static std::optional<Ending> ending_in(const std::filesystem::path& directory) {
        try {
            const auto noted =
                json::parse(storage::read_file(directory / trackers_file)).as_object();
            return ending_names.parse(noted.at("ended").as_string());
        } catch (const std::exception&) { // nothing recorded
            return std::nullopt;
        }
    }

    /// The position after which trackers may have stored superseded lines.
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
    static constexpr auto ending_names = rtrain::detail::name_table<Ending>(
        {{Ending::finished, "finished"}, {Ending::paused, "paused"}, {Ending::failed, "failed"}});

    void note() const noexcept {
        try {
            boost::json::object what{{"pending", to_.has_value()}};
            if (to_) {
                what["iteration"] = to_->iteration;
                what["step"] = to_->step;
            }
            if (ended_) {
                what["ended"] = ending_names[*ended_];
            }
            storage::replace_file(file_, json::serialize(what) + "\n");
        } catch (const std::exception& error) {
            console::warn("%s was not written, so trackers may show superseded reports if this "
                          "process is killed: %s",
                          trackers_file, error.what());
        }
    }

    mutable std::mutex mutex_;
    std::filesystem::path file_;
    std::uint64_t start_ = 0;
    std::size_t left_ = 0;
    std::optional<Position> to_; ///< set while it is pending
    std::optional<Ending> ended_;
};

} // namespace rtrain::track
