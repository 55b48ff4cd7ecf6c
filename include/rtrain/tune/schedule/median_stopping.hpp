// SPDX-License-Identifier: Apache-2.0
/// @file
/// MedianStopping: stops a trial whose best value is worse than the median of the others' means.
/// Source: Golovin et al., Google Vizier, 2017; decides as Ray Tune's MedianStoppingRule. Cost tier
/// 1: std and Boost.JSON.
#pragma once

#include <rtrain/tune/schedule/fifo.hpp>
#include <rtrain/tune/schedule/reading.hpp>
#include <rtrain/tune/schedule/statistics.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune {

/// Options of MedianStopping.
struct MedianStoppingOptions {
    /// Any increasing number in the reports. A report without it, or without the metric, is
    /// skipped.
    std::string time_attr = "time_total_s";
    /// No trial stops before this time, and means start at it; at least 0.
    double grace_period = 60;
    int min_samples_required = 3; ///< other trials that the median needs, at least 1
    /// With fewer others than that, a trial pauses for waiting ones after running for more than
    /// this since its last pause; at least 0.
    double min_time_slice = 0;
    bool hard_stop = true; ///< false: trials pause instead, and continue when no other trial waits
    std::optional<Goal> goal{}; ///< overrides the search's goal
};

/// Decides at a report of a trial at time t, past the grace period. The trial stops when its best
/// value so far is strictly worse than the median, over other trials that have reached t, of the
/// mean of their values in [grace_period, t]. NaN, and the values of failed trials, count as worse
/// than any other, where Ray leaves them out.
class MedianStopping {
public:
    static constexpr const char* name = "MedianStopping";

    /// Throws ConfigError [RT-U63] for options out of range.
    explicit MedianStopping(MedianStoppingOptions options = {})
        : options_(std::move(options)), read_(name, options_.time_attr, options_.goal) {
        using internal::Reading;
        Reading::expect(options_.grace_period >= 0, name, "grace_period must be at least 0");
        Reading::expect(options_.min_samples_required >= 1, name,
                        "min_samples_required must be at least 1");
        Reading::expect(options_.min_time_slice >= 0, name, "min_time_slice must be at least 0");
    }

    /// Throws ConfigError [RT-U62].
    void begin(const Goal& goal) { read_.begin(goal); }
    [[nodiscard]] Config add(const std::string& trial, Config config) {
        past_.erase(trial); // of a trial that runs again
        stopped_.erase(trial);
        return config;
    }

    [[nodiscard]] Verdict on_result(const TrialReport& report) {
        const auto point = read_(report);
        if (!point || stopped_.contains(report.trial)) {
            return GoOn{};
        }
        Past& past = past_[report.trial];
        past.append(*point);
        if (point->time < options_.grace_period) {
            return GoOn{};
        }
        std::vector<double> means;
        for (auto& [other, its] : past_) {
            if (other != report.trial && its.times.back() >= point->time) {
                if (const auto mean = its.mean(options_.grace_period, point->time)) {
                    means.push_back(rtrain::detail::or_worst(*mean));
                }
            }
        }
        if (static_cast<int>(means.size()) < options_.min_samples_required) {
            return yield(past, report);
        }
        const double median = internal::median_of(std::move(means));
        if (!(rtrain::detail::or_worst(past.best) < median)) {
            return GoOn{};
        }
        stopped_.insert(report.trial);
        return options_.hard_stop ? Verdict(Stop{}) : Verdict(Pause{});
    }

    void on_end(const std::string& trial, TrialEnd end, const std::optional<TrialReport>& last) {
        const auto point = last ? read_(*last) : std::nullopt;
        if (point) {
            past_[trial].append(*point);
        }
        if (const auto past = past_.find(trial); end == TrialEnd::errored && past != past_.end()) {
            past->second.fail();
        }
    }

    [[nodiscard]] std::optional<std::string> next(std::span<const Candidate> waiting) {
        return internal::first_of(waiting);
    }

    [[nodiscard]] boost::json::object save() const {
        boost::json::object trials;
        for (const auto& [trial, past] : past_) {
            boost::json::array times(past.times.begin(), past.times.end());
            boost::json::array scores(past.scores.begin(), past.scores.end());
            trials[trial] = {{"times", std::move(times)},
                             {"scores", std::move(scores)},
                             {"last_pause", past.last_pause}};
        }
        boost::json::array stopped(stopped_.begin(), stopped_.end());
        return json::finite(
                   {{"type", name}, {"trials", std::move(trials)}, {"stopped", std::move(stopped)}})
            .as_object();
    }

    /// Throws ConfigError [RT-U65].
    void load(const boost::json::object& state) {
        internal::load_state(name, state, [&] {
            std::map<std::string, Past> past;
            for (const auto& [trial, value] : state.at("trials").as_object()) {
                const auto& saved = value.as_object();
                const auto& times = saved.at("times").as_array();
                for (std::size_t at = 0; at < times.size(); ++at) {
                    past[trial].append(
                        {internal::saved_number(times[at]),
                         internal::saved_number(saved.at("scores").as_array().at(at))});
                }
                past.at(trial).last_pause = internal::saved_number(saved.at("last_pause"));
            }
            std::set<std::string> stopped;
            for (const auto& trial : state.at("stopped").as_array()) {
                stopped.emplace(trial.as_string());
            }
            past_ = std::move(past);
            stopped_ = std::move(stopped);
        });
    }

private:
    /// The reports of a trial.
    struct Past {
        std::vector<double> times;
        std::vector<double> scores;
        double best = 0;
        double last_pause = -std::numeric_limits<double>::infinity();

        void append(const internal::Point& point) {
            if (scores.empty() || rtrain::detail::is_worse(best, point.score, ScoreOrder::max)) {
                best = point.score;
            }
            in_order = in_order && (times.empty() || times.back() <= point.time);
            times.push_back(point.time);
            scores.push_back(point.score);
            means.emplace_back();
        }

        void fail() {
            best = std::numeric_limits<double>::quiet_NaN();
            std::fill(scores.begin(), scores.end(), best);
            std::fill(means.begin(), means.end(), std::nullopt);
        }

        /// The mean of the scores with from <= time <= to; none without any. Means are cached,
        /// because the same times are queried repeatedly.
        [[nodiscard]] std::optional<double> mean(double from, double to) {
            if (!in_order) {
                std::vector<double> some;
                for (std::size_t at = 0; at < times.size(); ++at) {
                    if (from <= times[at] && times[at] <= to) {
                        some.push_back(scores[at]);
                    }
                }
                return some.empty() ? std::nullopt : std::optional(internal::mean_of(some));
            }
            const auto begin = std::lower_bound(times.begin(), times.end(), from) - times.begin();
            const auto end = std::upper_bound(times.begin(), times.end(), to) - times.begin();
            if (begin >= end) {
                return std::nullopt;
            }
            auto& kept = means[static_cast<std::size_t>(end - 1)];
            if (!kept) {
                kept = internal::mean_of(std::span(scores).subspan(
                    static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
            }
            return kept;
        }

    private:
        bool in_order = true;
        std::vector<std::optional<double>>
            means; ///< of the scores up to this one, past the grace period
    };

    /// Decides for a trial with too few others to compare with.
    [[nodiscard]] Verdict yield(Past& past, const TrialReport& report) const {
        const double time = past.times.back();
        if (!report.others_wait || !(time - past.last_pause > options_.min_time_slice)) {
            return GoOn{};
        }
        past.last_pause = time;
        return Pause{};
    }

    MedianStoppingOptions options_;
    internal::Reading read_;
    std::map<std::string, Past> past_;
    std::set<std::string> stopped_; ///< trials, including those that continue after a soft stop
};
static_assert(Scheduler<MedianStopping>);

} // namespace rtrain::tune
