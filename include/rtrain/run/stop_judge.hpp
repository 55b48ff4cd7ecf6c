// SPDX-License-Identifier: Apache-2.0
/// @file
/// StopJudge: rank 0 evaluates the conditions in RunConfig::stop for each report.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/config/stop.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/run/options/stop_check.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain {

namespace detail {

/// Turns a condition into a function that takes each report, oldest first, and returns why the run
/// stops, or "".
struct NewJudge {
    using Judge = std::function<std::string(const Config&)>;

    Judge operator()(const stop::MaxIterations& it) const {
        return [it](const Config& line) {
            return track::number_of(line) < it.count
                       ? ""
                       : concat("MaxIterations: ", it.count, " reports");
        };
    }
    Judge operator()(const stop::MaxTime& it) const {
        return [it](const Config& line) {
            const auto seconds = line.at(track::RunLog::total_time_field).to_number<double>();
            return seconds < it.seconds ? "" : concat("MaxTime: ", it.seconds, " s");
        };
    }
    Judge operator()(const stop::Threshold& it) const {
        return [it](const Config& line) {
            const double value = metric_of(line, it.metric);
            const bool at_least = it.direction == stop::Direction::at_least;
            const bool reached = at_least ? value >= it.bound : value <= it.bound;
            return reached ? concat("Threshold: ", it.metric, " is ", value, ", ",
                                    at_least ? "at least " : "at most ", it.bound)
                           : "";
        };
    }
    Judge operator()(const stop::EarlyStopping& it) const {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        const bool up = it.mode == ScoreOrder::max;
        return [it, up, best = up ? -infinity : infinity, worse = 0](const Config& line) mutable {
            const double value = metric_of(line, it.metric);
            if (up ? value > best + it.min_delta : value < best - it.min_delta) {
                best = value;
                worse = 0;
                return std::string();
            }
            return ++worse < it.patience
                       ? ""
                       : concat("EarlyStopping: ", it.metric, " has not improved on ", best, " in ",
                                it.patience, " reports");
        };
    }
    Judge operator()(const stop::TrialPlateau& it) const {
        return [it, last = std::deque<double>(), count = 0](const Config& line) mutable {
            const double value = metric_of(line, it.metric);
            const auto wanted = static_cast<std::size_t>(it.num_results);
            last.push_back(value);
            if (last.size() > wanted) {
                last.pop_front();
            }
            if (++count < it.grace_period || last.size() < wanted) {
                return std::string();
            }
            if (it.metric_threshold &&
                (it.mode == ScoreOrder::min ? value > *it.metric_threshold
                                            : value < *it.metric_threshold)) {
                return std::string();
            }
            const double deviation = deviation_of(last);
            return deviation < it.std
                       ? concat("TrialPlateau: the last ", wanted, " values of ", it.metric,
                                " have a standard deviation of ", deviation)
                       : "";
        };
    }
    Judge operator()(const stop::Function& it) const {
        return [it](const Config& line) { return it(line) ? "a function of RunConfig::stop" : ""; };
    }

private:
    /// Population standard deviation, like numpy.std.
    [[nodiscard]] static double deviation_of(const std::deque<double>& values) {
        const auto count = static_cast<double>(values.size());
        double sum = 0;
        for (const double value : values) {
            sum += value;
        }
        double squares = 0;
        for (const double value : values) {
            squares += (value - sum / count) * (value - sum / count);
        }
        return std::sqrt(squares / count);
    }
};

} // namespace detail

class StopJudge {
public:
    /// `conditions` outlive this object.
    explicit StopJudge(const stop::Conditions& conditions) {
        for (const stop::Condition& condition : conditions) {
            judges_.push_back(
                {detail::name_of(condition), std::visit(detail::NewJudge(), condition.kind())});
            if (const auto* const time = std::get_if<stop::MaxTime>(&condition.kind())) {
                time_limit_s_ = std::min(time->seconds, time_limit_s_.value_or(time->seconds));
            }
        }
    }

    /// Processes a report, oldest first, without its checkpoint field. Throws ConfigError [RT-C32].
    void hear(const Config& line) {
        if (judges_.empty() || stops()) {
            return;
        }
        for (auto& [name, judge] : judges_) {
            try {
                reason_ = judge(line);
            } catch (const std::exception& error) {
                throw cannot_judge(name, line, error.what());
            } catch (...) {
                throw cannot_judge(name, line, detail::thrown_object().c_str());
            }
            if (stops()) {
                return;
            }
        }
    }

    /// Processes the run's total time, in seconds, between reports.
    void hear_time(double total_seconds) {
        if (!stops() && time_limit_s_ && total_seconds >= *time_limit_s_) {
            reason_ = detail::concat("MaxTime: ", *time_limit_s_, " s");
        }
    }

    [[nodiscard]] bool is_empty() const noexcept { return judges_.empty(); }
    /// The first reason to stop is kept.
    [[nodiscard]] bool stops() const noexcept { return !reason_.empty(); }
    [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
    /// The smallest MaxTime.
    [[nodiscard]] const std::optional<double>& time_limit_s() const noexcept {
        return time_limit_s_;
    }

private:
    static ConfigError cannot_judge(const std::string& name, const Config& line, const char* why) {
        return {"RT-C32", detail::concat(name, " cannot evaluate report ", track::number_of(line),
                                         ": ", why)};
    }

    struct Named {
        std::string name;
        detail::NewJudge::Judge judge;
    };
    std::vector<Named> judges_;
    std::optional<double> time_limit_s_;
    std::string reason_;
};

namespace detail {

/// Creates judges that apply the conditions to the reports of a trial, from the first on.
[[nodiscard]] inline std::function<std::function<bool(const Config&)>()>
judge_of(const stop::Conditions& stop) {
    if (stop.empty()) {
        return nullptr;
    }
    return [stop]() -> std::function<bool(const Config&)> {
        auto conditions = std::make_shared<stop::Conditions>(stop);
        auto judge = std::make_shared<StopJudge>(*conditions);
        return [conditions, judge](const Config& report) {
            judge->hear(report);
            return judge->stops();
        };
    };
}

} // namespace detail
} // namespace rtrain
