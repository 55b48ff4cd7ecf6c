// SPDX-License-Identifier: Apache-2.0
/// @file
/// Asha: a trial stops at a rung if it is not among the best that have reached it. No trial waits
/// for another. Source: Li et al., A System for Massively Parallel Hyperparameter Tuning, 2020;
/// decides as Ray Tune's AsyncHyperBandScheduler. Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/tune/schedule/fifo.hpp>
#include <rtrain/tune/schedule/reading.hpp>
#include <rtrain/tune/schedule/statistics.hpp>
#include <rtrain/tune/search/random.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune {

/// Options of Asha.
struct AshaOptions {
    /// Any increasing number in the reports. A report without it, or without the metric, is
    /// skipped.
    std::string time_attr = "training_iteration";
    double max_t = 100;          ///< in units of `time_attr`
    double grace_period = 1;     ///< the first rung; more than 0, at most max_t
    double reduction_factor = 4; ///< one in this many trials continues from a rung; more than 1
    int brackets = 1;            ///< at least 1; each begins one rung later than the previous one
    /// True: trials stop at max_t. False: those that reach it run to their own end.
    bool stop_last_trials = true;
    std::optional<Goal> goal{}; ///< overrides the search's goal
    std::uint64_t seed = 0;     ///< for the choice of brackets
};

/// Rungs of bracket s are at grace_period * reduction_factor^(k + s), k = 0, 1, ..., as long as
/// that is at most max_t. A trial is compared at its first report at or past a rung, the highest it
/// has reached. It stops when its score is below the quantile 1 - 1 / reduction_factor of the
/// earlier scores there; then its own counts, too. NaN and the scores of failed trials count as
/// worse than any other, and a trial with NaN stops at its next rung, where Ray lets it continue.
/// Trials are spread over brackets at random, in proportion to e^rungs.
class Asha {
public:
    static constexpr const char* name = "Asha";

    /// Throws ConfigError [RT-U63] for options out of range.
    explicit Asha(AshaOptions options = {})
        : options_(std::move(options)), read_(name, options_.time_attr, options_.goal),
          random_(options_.seed) {
        using internal::Reading;
        const double max_t = options_.max_t;
        const double grace = options_.grace_period;
        const double factor = options_.reduction_factor;
        Reading::expect(max_t > 0 && std::isfinite(max_t), name, "max_t must be more than 0");
        Reading::expect(grace > 0 && grace <= max_t, name,
                        "grace_period must be more than 0 and at most max_t");
        Reading::expect(factor > 1 && std::isfinite(factor), name,
                        "reduction_factor must be more than 1");
        Reading::expect(options_.brackets >= 1, name, "brackets must be at least 1");
        for (int bracket = 0; bracket < options_.brackets; ++bracket) {
            auto& rungs = brackets_.emplace_back();
            const int count =
                static_cast<int>(std::log(max_t / grace) / std::log(factor) - bracket + 1);
            for (int rung = count - 1; rung >= 0; --rung) {
                rungs.push_back({.time = grace * std::pow(factor, rung + bracket)});
            }
        }
    }

    /// Throws ConfigError [RT-U62].
    void begin(const Goal& goal) { read_.begin(goal); }

    [[nodiscard]] Config add(const std::string& trial, Config config) {
        bracket_of_[trial] = choose_bracket();
        return config;
    }

    [[nodiscard]] Verdict on_result(const TrialReport& report) {
        const auto point = read_(report);
        if (!point) {
            return GoOn{};
        }
        if (options_.stop_last_trials && point->time >= options_.max_t) {
            return Stop{};
        }
        return record_at_rung(report.trial, *point) ? Verdict(GoOn{}) : Verdict(Stop{});
    }

    void on_end(const std::string& trial, TrialEnd end, const std::optional<TrialReport>& last) {
        if (const auto point = last ? read_(*last) : std::nullopt) {
            (void)record_at_rung(trial, *point);
        }
        const auto bracket = bracket_of_.find(trial);
        if (end == TrialEnd::errored && bracket != bracket_of_.end()) {
            for (Rung& rung : brackets_[bracket->second]) {
                rung.fail(trial);
            }
        }
        bracket_of_.erase(trial);
    }

    [[nodiscard]] std::optional<std::string> next(std::span<const Candidate> waiting) {
        return internal::first_of(waiting);
    }

    [[nodiscard]] boost::json::object save() const {
        boost::json::array brackets;
        for (const auto& rungs : brackets_) {
            boost::json::array all;
            for (const Rung& rung : rungs) {
                boost::json::object scores;
                for (const auto& [trial, score] : rung.scores) {
                    scores[trial] = score;
                }
                all.push_back(std::move(scores));
            }
            brackets.push_back(std::move(all));
        }
        boost::json::object trials;
        for (const auto& [trial, bracket] : bracket_of_) {
            trials[trial] = bracket;
        }
        return json::finite({{"type", name},
                             {"brackets", std::move(brackets)},
                             {"trials", std::move(trials)},
                             {"random", random_.save()}})
            .as_object();
    }

    /// Throws ConfigError [RT-U65].
    void load(const boost::json::object& state) {
        internal::load_state(name, state, [&] {
            Asha loaded(options_);
            const auto& brackets = state.at("brackets").as_array();
            for (std::size_t bracket = 0; bracket < brackets_.size(); ++bracket) {
                const auto& rungs = brackets.at(bracket).as_array();
                for (std::size_t rung = 0; rung < brackets_[bracket].size(); ++rung) {
                    for (const auto& [trial, score] : rungs.at(rung).as_object()) {
                        loaded.brackets_[bracket][rung].add(std::string(trial),
                                                            internal::saved_number(score));
                    }
                }
            }
            for (const auto& [trial, bracket] : state.at("trials").as_object()) {
                loaded.bracket_of_[trial] = bracket.to_number<std::size_t>();
                (void)brackets_.at(loaded.bracket_of_[trial]);
            }
            loaded.random_.load(state.at("random"));
            loaded.read_ = read_;
            *this = std::move(loaded);
        });
    }

private:
    struct Rung {
        double time = 0;
        std::map<std::string, double> scores{};
        std::vector<double> in_order{};

        void add(const std::string& trial, double score) {
            scores[trial] = score;
            score = rtrain::detail::or_worst(score);
            in_order.insert(std::upper_bound(in_order.begin(), in_order.end(), score), score);
        }
        void fail(const std::string& trial) {
            if (const auto found = scores.find(trial); found != scores.end()) {
                in_order.erase(std::lower_bound(in_order.begin(), in_order.end(),
                                                rtrain::detail::or_worst(found->second)));
                add(trial, std::numeric_limits<double>::quiet_NaN());
            }
        }
    };

    [[nodiscard]] std::size_t choose_bracket() {
        if (brackets_.size() == 1) {
            return 0;
        }
        std::size_t most = 0;
        for (const auto& rungs : brackets_) {
            most = std::max(most, rungs.size());
        }
        std::vector<double> up_to;
        for (const auto& rungs : brackets_) {
            const double weight =
                std::exp(static_cast<double>(rungs.size()) - static_cast<double>(most));
            up_to.push_back(weight + (up_to.empty() ? 0 : up_to.back()));
        }
        const double draw = random_.uniform() * up_to.back();
        const auto chosen = std::upper_bound(up_to.begin(), up_to.end() - 1, draw);
        return static_cast<std::size_t>(chosen - up_to.begin());
    }

    /// Records the score at the highest rung that the trial has newly reached, if any.
    [[nodiscard]] bool record_at_rung(const std::string& trial, const internal::Point& point) {
        const auto bracket = bracket_of_.find(trial);
        if (bracket == bracket_of_.end()) {
            return true;
        }
        // Ray calls numpy's percentile; without this detour the bits would differ.
        const double quantile = (1 - 1 / options_.reduction_factor) * 100 / 100;
        for (Rung& rung : brackets_[bracket->second]) { // the highest first
            if (point.time < rung.time) {
                continue;
            }
            if (rung.scores.contains(trial)) {
                if (!options_.stop_last_trials) {
                    return true; // already judged
                }
                continue;
            }
            const double cutoff = internal::quantile_of_sorted(rung.in_order, quantile);
            rung.add(trial, point.score);
            return !std::isnan(point.score) && !(point.score < cutoff);
        }
        return true;
    }

    AshaOptions options_;
    internal::Reading read_;
    Random random_;
    std::vector<std::vector<Rung>> brackets_; ///< the rungs of each bracket, the highest first
    std::map<std::string, std::size_t> bracket_of_;
};
static_assert(Scheduler<Asha>);

} // namespace rtrain::tune
