// SPDX-License-Identifier: Apache-2.0
/// @file
/// PendingRewind: a note in the run's directory that trackers have to forget reports. Training does
/// not wait for them, so a process may be killed when the run has gone on and a tracker still shows
/// what does not count. The next start then has it forget that, too. How the run has ended stands
/// there as well, for trackers that do not hear of it.
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
#include <optional>
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
        ended_.clear();
        to_ = position;
        note();
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
            to_.reset();
            note();
        }
    }

    /// Nothing follows in this start of the run.
    void ended(Ending ending) noexcept {
        const std::scoped_lock lock(mutex_);
        if (!file_.empty()) {
            ended_ = words_of(ending);
            note();
        }
    }

    /// How the run has ended that is not under way any more; none when it was killed.
    [[nodiscard]] static std::optional<Ending> ending_in(const std::filesystem::path& directory) {
        try {
            const auto noted =
                json::parse(storage::read_file(directory / trackers_file)).as_object();
            for (const Ending ending : {Ending::finished, Ending::paused, Ending::failed}) {
                if (noted.at("ended").as_string() == words_of(ending)) {
                    return ending;
                }
            }
        } catch (const std::exception&) { // nothing is noted
        }
        return std::nullopt;
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
    [[nodiscard]] static const char* words_of(Ending ending) noexcept {
        return ending == Ending::finished ? "finished"
               : ending == Ending::paused ? "paused"
                                          : "failed";
    }

    void note() const noexcept {
        try {
            boost::json::object what{{"pending", to_.has_value()}};
            if (to_) {
                what["iteration"] = to_->iteration;
                what["step"] = to_->step;
            }
            if (!ended_.empty()) {
                what["ended"] = ended_;
            }
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
    std::optional<Position> to_; ///< while it is pending
    std::string ended_;
};

} // namespace rtrain::track
