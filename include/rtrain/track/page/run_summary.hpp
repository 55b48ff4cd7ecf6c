// SPDX-License-Identifier: Apache-2.0
/// @file
/// RunSummary: the results of a run, collected line by line in bounded memory, for a report page.
#pragma once

#include <rtrain/config/config.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/track/page/curves.hpp>
#include <rtrain/track/page/time_shares.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::track {

/// Consecutive reports of one start of the run.
struct RunStart {
    std::int64_t first = 0; ///< iterations
    std::int64_t last = 0;
    std::string date{}; ///< of the first report
    std::string host{}; ///< of rank 0
    std::int64_t process = 0;
    std::int64_t reports = 0; ///< including superseded ones
    double seconds = 0;       ///< up to the last report
};

struct KeptCheckpoint {
    std::string name;
    std::int64_t iteration = 0;
    Config metrics;
    bool is_best = false;
};

/// True if a name in a line is a metric.
struct IsMetric {
    const Config& line;

    bool operator()(std::string_view name) const {
        return !RunLog::fills_in(name) && !(name == time_field && TimeShares::has(line));
    }
};

class RunSummary {
public:
    static constexpr std::size_t most_rows = 1000; ///< per table

    std::string name{};
    std::string location{}; ///< path or URI
    std::string status{};   ///< how it ended, in a word or two; "" if unknown
    std::string error_code{};
    std::string error{};                       ///< "" for none
    std::vector<KeptCheckpoint> checkpoints{}; ///< oldest first
    Config last{};                             ///< the newest line; empty before the first
    Config
        config{};   ///< of the newest start, which may have reported nothing; empty: that of `last`
    Config facts{}; ///< run.json, or nothing

    /// Adds the next line of result.json.
    void add(const Config& line) {
        const std::int64_t iteration = number_of(line);
        curves_.add(iteration, line, IsMetric{line});
        time_.add(iteration, line);
        axes_.add(iteration, {{"time", number_in(line, RunLog::total_time_field)}}, Any());
        if (const auto rate = TimeShares::rows_per_second(line)) {
            rates_.add(iteration, {{"rows/s", *rate}}, Any());
            axes_.add(iteration, {{"rows", time_.rows()}}, Any());
        }
        add_to(starts_, line);
        add_config(iteration, line);
        ++reports_;
    }

    /// Adds the next line of superseded.json.
    void add_superseded(const Config& line) {
        superseded_.add(number_of(line), line, IsMetric{line});
        add_to(superseded_starts_, line);
        ++superseded_reports_;
    }

    [[nodiscard]] const Curves& curves() const noexcept { return curves_; }
    [[nodiscard]] const Curves& superseded() const noexcept { return superseded_; }
    [[nodiscard]] const TimeShares& time() const noexcept { return time_; }
    /// Rows per second, as a curve.
    [[nodiscard]] const Curves& rates() const noexcept { return rates_; }
    /// Additional axes for curves, by iteration: seconds of training, rows read.
    [[nodiscard]] const Curves& axes() const noexcept { return axes_; }
    /// Configurations, each with the first iteration that had it; the newest most_configs.
    [[nodiscard]] const std::vector<std::pair<std::int64_t, Config>>& configs() const noexcept {
        return configs_;
    }
    /// At most most_rows.
    [[nodiscard]] const std::vector<RunStart>& starts() const noexcept { return starts_; }
    [[nodiscard]] const std::vector<RunStart>& superseded_starts() const noexcept {
        return superseded_starts_;
    }
    [[nodiscard]] std::size_t reports() const noexcept { return reports_; }
    [[nodiscard]] std::size_t superseded_reports() const noexcept { return superseded_reports_; }
    /// The value of a field that rtrain fills in; a default if missing or of a different type, as
    /// in lines of other programs.
    [[nodiscard]] static std::string text_of(const Config& line, std::string_view field) {
        const auto* const value = line.if_contains(field);
        return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
    }
    [[nodiscard]] static double number_in(const Config& line, std::string_view field) {
        const auto* const value = line.if_contains(field);
        return value != nullptr && value->is_number() ? value->to_number<double>() : 0;
    }

private:
    static constexpr std::size_t most_configs = 20;

    struct Any {
        bool operator()(std::string_view /*name*/) const { return true; }
    };

    void add_config(std::int64_t iteration, const Config& line) {
        const auto* const noted = line.if_contains("config");
        if (noted == nullptr || !noted->is_object() ||
            (!configs_.empty() && configs_.back().second == noted->get_object())) {
            return;
        }
        configs_.emplace_back(iteration, noted->get_object());
        if (configs_.size() > most_configs) {
            configs_.erase(configs_.begin());
        }
    }

    /// Reports are numbered from 1 in each start of the run.
    static void add_to(std::vector<RunStart>& starts, const Config& line) {
        const std::int64_t iteration = number_of(line);
        const double since_restore = number_in(line, "time_since_restore");
        const auto process = static_cast<std::int64_t>(number_in(line, "pid"));
        const auto reports = static_cast<std::int64_t>(number_in(line, "iterations_since_restore"));
        const bool goes_on = !starts.empty() && starts.back().process == process &&
                             starts.back().last < iteration && starts.back().reports < reports &&
                             starts.back().seconds <= since_restore;
        if (!goes_on && starts.size() < most_rows) {
            starts.push_back({.first = iteration,
                              .date = text_of(line, "date"),
                              .host = text_of(line, "hostname"),
                              .process = process});
        }
        starts.back().last = iteration;
        starts.back().reports = reports;
        starts.back().seconds = since_restore;
    }

    Curves curves_{800};
    Curves superseded_{100};
    TimeShares time_;
    Curves rates_{800};
    Curves axes_{400};
    std::vector<std::pair<std::int64_t, Config>> configs_;
    std::vector<RunStart> starts_;
    std::vector<RunStart> superseded_starts_;
    std::size_t reports_ = 0;
    std::size_t superseded_reports_ = 0;
};

} // namespace rtrain::track
