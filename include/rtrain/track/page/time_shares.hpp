// SPDX-License-Identifier: Apache-2.0
/// @file
/// TimeShares: breakdown of a run's time, from "time" in its reports; in total, and by iteration.
#pragma once

#include <rtrain/config/config.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/process/status/step_clock.hpp>
#include <rtrain/track/page/curve.hpp>

#include <boost/json/object.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::track {

class TimeShares {
public:
    using Seconds = decltype(StepTimes::seconds); ///< of each part

    struct Span {
        std::int64_t last = 0; ///< last iteration; the first follows the previous span
        Seconds seconds{};
    };

    /// True if a report has a time breakdown. A user's metric may have the same name.
    [[nodiscard]] static bool has(const Config& report) {
        const auto* const time = report.if_contains(time_field);
        return time != nullptr && time->is_object() &&
               std::all_of(step_part_names.begin(), step_part_names.end(),
                           [&](std::string_view part) {
                               const auto* const value = time->get_object().if_contains(part);
                               return value != nullptr && value->is_number();
                           });
    }

    /// None if a report does not have the number, or has read no rows.
    [[nodiscard]] static std::optional<double> rows_per_second(const Config& report) {
        if (!has(report)) {
            return std::nullopt;
        }
        const boost::json::object& time = report.at(time_field).get_object();
        const auto* const rows = time.if_contains("rows");
        double seconds = 0;
        for (const std::string_view part : step_part_names) {
            seconds += time.at(part).to_number<double>();
        }
        const double count = rows != nullptr && rows->is_number() ? rows->to_number<double>() : 0;
        return count > 0 && seconds > 0 ? std::optional(count / seconds) : std::nullopt;
    }

    void add(std::int64_t iteration, const Config& report) {
        if (!has(report)) {
            return;
        }
        if (in_last_ == per_span_ || spans_.empty()) {
            if (spans_.size() == most_spans) {
                merge_pairs();
            }
            spans_.emplace_back();
            in_last_ = 0;
        }
        const boost::json::object& time = report.at(time_field).get_object();
        for (std::size_t i = 0; i < step_part_names.size(); ++i) {
            const double seconds = time.at(step_part_names[i]).to_number<double>();
            spans_.back().seconds[i] += seconds;
            total_[i] += seconds;
        }
        const auto* const rows = time.if_contains("rows");
        rows_ += rows != nullptr && rows->is_number() ? rows->to_number<double>() : 0;
        spans_.back().last = iteration;
        ++in_last_;
    }

    [[nodiscard]] const Seconds& total() const noexcept { return total_; }
    [[nodiscard]] double total_seconds() const {
        return std::accumulate(total_.begin(), total_.end(), 0.0);
    }
    [[nodiscard]] double rows() const noexcept { return rows_; }
    [[nodiscard]] const std::vector<Span>& spans() const noexcept { return spans_; }

private:
    static constexpr std::size_t most_spans = 200; // even

    /// Requires that all spans are full.
    void merge_pairs() {
        for (std::size_t i = 0; i < spans_.size() / 2; ++i) {
            Span merged = spans_[2 * i + 1];
            for (std::size_t part = 0; part < total_.size(); ++part) {
                merged.seconds[part] += spans_[2 * i].seconds[part];
            }
            spans_[i] = merged;
        }
        spans_.resize(spans_.size() / 2);
        per_span_ *= 2;
    }

    std::vector<Span> spans_;
    std::size_t per_span_ = 1;
    std::size_t in_last_ = 0; ///< reports in the last span
    Seconds total_{};
    double rows_ = 0;
};

/// `{"parts": [...], "x": [last iterations], "y": [[seconds of each part], ...]}`
[[nodiscard]] inline std::string to_json(const TimeShares& time) {
    std::string names;
    for (const std::string_view part : step_part_names) {
        names += (names.empty() ? "\"" : ",\"") + std::string(part) + '"';
    }
    std::string x;
    std::string y;
    for (const TimeShares::Span& span : time.spans()) {
        x += (x.empty() ? "" : ",") + std::to_string(span.last);
        y += y.empty() ? "[" : ",[";
        for (std::size_t i = 0; i < span.seconds.size(); ++i) {
            y += i == 0 ? "" : ",";
            append_number(y, span.seconds[i]);
        }
        y += "]";
    }
    return "{\"parts\":[" + names + "],\"x\":[" + x + "],\"y\":[" + y + "]}";
}

} // namespace rtrain::track
