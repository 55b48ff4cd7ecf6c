// SPDX-License-Identifier: Apache-2.0
/// @file
/// State of one rank for hang detection, from its reports and from /proc. Pure.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/launch/control/rank_report.hpp>
#include <rtrain/launch/watch/longest_pause.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>

namespace rtrain::launch {

[[nodiscard]] inline double tenths(double x) {
    return std::round(x * 10) / 10;
}

struct WatchedRank {
    using Clock = std::chrono::steady_clock;

    bool joined = false;
    bool gone = false; ///< permanently; the others continue without it
    RankReport last{};
    Clock::time_point reported_at{};
    Clock::time_point waits_since{};
    double heard_s = 0; ///< HangWatch's time with reports, at its last one
    std::optional<Clock::time_point> stopped_since{};
    /// Start of the measurement of processor time,
    Clock::time_point cpu_at{};
    double cpu_s = 0;
    double cpu = 0; ///< and the part of a core it used.

    [[nodiscard]] bool is_live() const { return joined && !gone && last.phase != Phase::done; }
    [[nodiscard]] bool is_starting() const {
        return !gone && (!joined || last.phase == Phase::starting);
    }

    /// True if the rank has progressed since the last report.
    [[nodiscard]] bool is_news(const RankReport& report) const {
        return !joined || last.progress != report.progress || last.steps != report.steps ||
               last.collectives != report.collectives || last.phase != report.phase;
    }

    /// Returns the part of a core used since the last measurement; 0 if that was just now. Waiting
    /// ranks may busy-wait, so their processor time means nothing.
    double measure(const RankReport& report, Clock::time_point now) {
        constexpr double measured_s = 1;
        const double passed = seconds(now - cpu_at);
        if (joined && passed < measured_s) {
            return 0;
        }
        const bool is_known = joined;
        if (is_known) {
            cpu = std::max(0.0, report.cpu_s - cpu_s) / passed;
        }
        cpu_at = now;
        cpu_s = report.cpu_s;
        return is_known ? cpu : 0;
    }

    void take(const RankReport& report, Clock::time_point now) {
        if (!joined || last.waiting_in != report.waiting_in ||
            last.collectives != report.collectives) {
            waits_since = now;
        }
        joined = true;
        reported_at = now;
        last = report;
    }

    /// Excludes that much time.
    void shift(Clock::duration gap) {
        reported_at += gap;
        waits_since += gap;
        cpu_at += gap;
        if (stopped_since) {
            *stopped_since += gap;
        }
    }

    /// Describes what the rank does.
    [[nodiscard]] std::string describe(Clock::time_point now) const {
        if (gone) {
            return "has died";
        }
        if (!joined) {
            return "has not joined";
        }
        std::string text = detail::concat(phase_names[last.phase], ", step ", last.steps);
        if (!last.waiting_in.empty()) {
            text += detail::concat(", waits in ", last.waiting_in, " for ",
                                   tenths(seconds(now - waits_since)), " s");
        } else if (is_live()) {
            text +=
                detail::concat(", waits for no rank, uses ", std::round(100 * cpu), "% of a core");
            if (!last.reading.empty()) {
                text += ", reads " + last.reading;
            }
            if (last.output_blocked) {
                text += ", and its output is not consumed";
            }
        }
        if (stopped_since) {
            text += detail::concat(", stopped for ", tenths(seconds(now - *stopped_since)), " s");
        }
        if (is_live() && seconds(now - reported_at) > 1) {
            text += detail::concat(", last report ", tenths(seconds(now - reported_at)), " s ago");
        }
        return text;
    }
};

} // namespace rtrain::launch
