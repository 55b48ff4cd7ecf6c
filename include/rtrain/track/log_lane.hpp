// SPDX-License-Identifier: Apache-2.0
/// @file
/// LogLane: one of a run's logs, its reports or its steps, on the way to one tracker.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/track/log_reader.hpp>

#include <boost/json/value.hpp>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

namespace rtrain::track {

/// How far a log has come.
struct LogEnd {
    std::uint64_t size = 0;  ///< bytes
    std::int64_t number = 0; ///< of the last report or step

    friend bool operator==(const LogEnd&, const LogEnd&) noexcept = default;
};

class LogLane {
public:
    /// `number_field` is what lines are counted by.
    LogLane(const char* file, const char* number_field, bool of_steps)
        : file_(file), number_field_(number_field), of_steps_(of_steps) {}

    /// The tracker has all up to number `at` of a log that had come to `end`.
    void take_up(const std::filesystem::path& directory, std::int64_t at, const LogEnd& end) {
        at_ = at;
        const bool has_all = at >= end.number;
        log_.emplace(directory / file_, has_all ? end.size : 0);
        delivered_ = has_all ? end : LogEnd{};
    }

    /// Number of the last line that the tracker has.
    [[nodiscard]] std::int64_t at() const noexcept { return at_; }
    /// What deliver() has come to.
    [[nodiscard]] const LogEnd& delivered() const noexcept { return delivered_; }

    /// Has `write(line)` called for each line up to `end` that the tracker has not, as long as
    /// `goes_on()` says so. What is thrown leaves the line for the next time.
    template <class Write, class GoesOn>
    void deliver(const LogEnd& end, Write&& write, GoesOn&& goes_on) {
        const Resting resting{*log_};
        while (const auto text = log_->line(end.size)) {
            if (const auto line = parsed(*text)) {
                const std::int64_t number = line->at(number_field_).to_number<std::int64_t>();
                if (number > at_) {
                    write(Line{.is_step = of_steps_,
                               .number = number,
                               .time_s = line->at(time_field).to_number<double>(),
                               .values = *line,
                               .text = *text});
                    at_ = number;
                }
            }
            log_->pass();
            if (!goes_on()) {
                return;
            }
        }
        delivered_ = end;
    }

private:
    static constexpr const char* time_field = "timestamp";

    struct Resting {
        ~Resting() { log.rest(); }
        LogReader& log;
    };

    /// None for what is no report or step: a line that no other reader of the log can read either,
    /// or a mark.
    [[nodiscard]] std::optional<Config> parsed(std::string_view text) const {
        try {
            Config line = json::parse(text).as_object();
            const bool is_one = line.at(number_field_).is_number() && line.contains(time_field) &&
                                line.at(time_field).is_number();
            return is_one ? std::optional(std::move(line)) : std::nullopt;
        } catch (const std::bad_alloc&) { // says nothing about the line
            throw;
        } catch (const std::exception&) {
            return std::nullopt;
        }
    }

    const char* file_;
    const char* number_field_;
    bool of_steps_;
    std::optional<LogReader> log_; ///< once it was taken up
    std::int64_t at_ = 0;
    LogEnd delivered_;
};

} // namespace rtrain::track
