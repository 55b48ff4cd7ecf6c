// SPDX-License-Identifier: Apache-2.0
/// @file
/// LogCursor: reads one of a run's logs, its reports or its steps, for one tracker.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/track/lines/log_reader.hpp>

#include <boost/json/value.hpp>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

namespace rtrain::track {

/// The end of a log.
struct LogEnd {
    std::uint64_t size = 0;  ///< bytes
    std::int64_t number = 0; ///< number of the last report or step

    friend bool operator==(const LogEnd&, const LogEnd&) noexcept = default;
};

class LogCursor {
public:
    /// `number_field` holds the number of a line.
    LogCursor(const char* file, const char* number_field, bool of_steps)
        : file_(file), number_field_(number_field), of_steps_(of_steps) {}

    /// Resumes: the tracker has all lines up to number `at`; the log ends at `end`.
    void resume(const std::filesystem::path& directory, std::int64_t at, const LogEnd& end) {
        at_ = at;
        const bool has_all = at >= end.number;
        log_.emplace(directory / file_, has_all ? end.size : 0);
        delivered_ = has_all ? end : LogEnd{};
    }

    /// Number of the last line that the tracker has.
    [[nodiscard]] std::int64_t at() const noexcept { return at_; }
    /// The end that deliver() has reached.
    [[nodiscard]] const LogEnd& delivered() const noexcept { return delivered_; }

    /// Calls `write(line)` for each line up to `end` that the tracker does not have yet, while
    /// `goes_on()` returns true. If `write` throws, the next call retries the line.
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

    /// None if the line is not a report or step, such as a mark or a damaged line.
    [[nodiscard]] std::optional<Config> parsed(std::string_view text) const {
        try {
            Config line = json::parse(text).as_object();
            const bool is_one = line.at(number_field_).is_number() && line.contains(time_field) &&
                                line.at(time_field).is_number();
            return is_one ? std::optional(std::move(line)) : std::nullopt;
        } catch (const std::bad_alloc&) { // not the line's fault
            throw;
        } catch (const std::exception&) {
            return std::nullopt;
        }
    }

    const char* file_;
    const char* number_field_;
    bool of_steps_;
    std::optional<LogReader> log_; ///< set by resume()
    std::int64_t at_ = 0;
    LogEnd delivered_;
};

} // namespace rtrain::track
