// SPDX-License-Identifier: Apache-2.0
/// @file
/// HyperBand: trials wait for each other at milestones, and only the best of a bracket continue.
/// Source: Li et al., Hyperband, JMLR 18, 2018; decides as Ray Tune's HyperBandScheduler. Cost tier
/// 1: std and Boost.JSON.
#pragma once

#include <rtrain/tune/schedule/hyper_band_bracket.hpp>
#include <rtrain/tune/schedule/scheduler.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune {

/// Options of HyperBand.
struct HyperBandOptions {
    /// Any increasing number in the reports. A report without it, or without the metric, is
    /// skipped: the others wait for a later report, or for the trial's end.
    std::string time_attr = "training_iteration";
    double max_t = 81;           ///< in units of `time_attr`, more than 0
    double reduction_factor = 3; ///< one in this many trials of a bracket continues; more than 1
    /// True: trials stop at max_t. False: the last ones of a bracket run to their own end.
    bool stop_last_trials = true;
    std::optional<Goal> goal{}; ///< overrides the search's goal
    /// True: a report without `time_attr` or the metric is an error [RT-U64].
    bool require_attrs = false;
};

/// A band has s_max + 1 brackets, s_max = round(log max_t / log eta); bracket s holds ceil((s_max +
/// 1) / (s + 1) * eta^s) trials, which first wait for each other at int(max_t * eta^-s), then at
/// eta times that, up to max_t. New trials fill the brackets one by one; the number of bands is
/// unlimited. NaN is the worst score; among equal scores, the trial added later continues.
///
/// If the last trial that others wait for ends by itself after the first halving, this halves,
/// while Ray leaves the paused trials waiting.
class HyperBand {
public:
    static constexpr const char* name = "HyperBand";

    /// Throws ConfigError [RT-U63] for options out of range.
    explicit HyperBand(HyperBandOptions options = {})
        : options_(std::move(options)), read_(name, options_.time_attr, options_.goal) {
        using internal::Reading;
        Reading::expect(options_.max_t > 0 && std::isfinite(options_.max_t), name,
                        "max_t must be more than 0");
        Reading::expect(options_.reduction_factor > 1 && std::isfinite(options_.reduction_factor),
                        name, "reduction_factor must be more than 1");
        brackets_in_band_ = static_cast<int>(std::nearbyint(std::log(options_.max_t) /
                                                            std::log(options_.reduction_factor))) +
                            1;
        Reading::expect(brackets_in_band_ >= 1 && first_milestone(0) >= 1, name,
                        "max_t must be at least 1");
    }

    /// Throws ConfigError [RT-U62].
    void begin(const Goal& goal) { read_.begin(goal); }

    [[nodiscard]] Config add(const std::string& trial, Config config) {
        if (bands_.empty() || bands_.back().empty() || bands_.back().back()->filled()) {
            open_bracket();
        }
        bands_.back().back()->add(trial);
        place_of_[trial] = {bands_.size() - 1, bands_.back().size() - 1};
        return config;
    }

    /// Throws ConfigError [RT-U64].
    [[nodiscard]] Verdict on_result(const TrialReport& report) {
        const auto point = read_(report, options_.require_attrs);
        internal::Bracket* const bracket = bracket_of(report.trial);
        if (bracket == nullptr) { // it was stopped, and has reported once more
            return Stop{};
        }
        if (!point) {
            return GoOn{};
        }
        bracket->hear(report.trial, *point);
        if (bracket->goes_on(report.trial)) {
            return GoOn{};
        }
        return process(*bracket, report.trial);
    }

    void on_end(const std::string& trial, TrialEnd /*end*/,
                const std::optional<TrialReport>& /*last*/) {
        internal::Bracket* const bracket = bracket_of(trial);
        if (bracket == nullptr) {
            return;
        }
        forget(*bracket, trial);
        if (!bracket->finished()) {
            (void)process(*bracket, "");
        }
    }

    /// Returns the trial of the least advanced bracket, in the oldest band that has a runnable one.
    [[nodiscard]] std::optional<std::string> next(std::span<const Candidate> waiting) {
        std::map<std::string, bool> paused;
        for (const Candidate& candidate : waiting) {
            paused[candidate.trial] = candidate.paused;
        }
        for (const auto& band : bands_) {
            std::vector<const internal::Bracket*> order;
            for (const auto& bracket : band) {
                if (bracket) {
                    order.push_back(&*bracket);
                }
            }
            std::stable_sort(order.begin(), order.end(), [](const auto* one, const auto* other) {
                return one->done() < other->done();
            });
            for (const internal::Bracket* bracket : order) {
                for (const std::string& trial : bracket->trials()) {
                    const auto found = paused.find(trial);
                    if (found != paused.end() && (!found->second || bracket->may_go_on(trial))) {
                        return trial;
                    }
                }
            }
        }
        return std::nullopt;
    }

    [[nodiscard]] std::vector<Order> orders() { return std::exchange(orders_, {}); }

    /// True until a bracket is full; its first trials need others to be compared with.
    [[nodiscard]] bool wants_trials() const {
        return !bands_.empty() && !bands_.back().empty() && !bands_.back().back()->filled();
    }

    [[nodiscard]] boost::json::object save() const {
        boost::json::array bands;
        for (const auto& band : bands_) {
            boost::json::array brackets;
            for (const auto& bracket : band) {
                brackets.push_back(bracket ? boost::json::value(bracket->save()) : nullptr);
            }
            bands.push_back(std::move(brackets));
        }
        boost::json::array given_up;
        for (const Order& order : orders_) {
            given_up.emplace_back(order.trial);
        }
        return json::finite(
                   {{"type", name}, {"bands", std::move(bands)}, {"given_up", std::move(given_up)}})
            .as_object();
    }

    /// Throws ConfigError [RT-U65].
    void load(const boost::json::object& state) {
        internal::load_state(name, state, [&] {
            HyperBand loaded(options_);
            for (const auto& band : state.at("bands").as_array()) {
                loaded.bands_.emplace_back();
                for (const auto& saved : band.as_array()) {
                    loaded.resume(saved);
                }
            }
            for (const auto& trial : state.at("given_up").as_array()) {
                loaded.orders_.push_back({std::string(trial.as_string()), Stop{}});
            }
            bands_ = std::move(loaded.bands_);
            place_of_ = std::move(loaded.place_of_);
            orders_ = std::move(loaded.orders_);
        });
    }

private:
    struct Place {
        std::size_t band = 0;
        std::size_t bracket = 0;
    };

    [[nodiscard]] std::int64_t first_milestone(int bracket) const {
        return static_cast<std::int64_t>(options_.max_t *
                                         std::pow(options_.reduction_factor, -bracket));
    }
    [[nodiscard]] internal::Bracket new_bracket(int number) const {
        return internal::Bracket({.trials = static_cast<std::int64_t>(std::ceil(
                                      static_cast<double>(brackets_in_band_) / (number + 1) *
                                      std::pow(options_.reduction_factor, number))),
                                  .first = first_milestone(number),
                                  .max_t = options_.max_t,
                                  .eta = options_.reduction_factor,
                                  .halvings = number,
                                  .stop_last_trials = options_.stop_last_trials});
    }

    /// Opens the next bracket of the band, or of a new band. Skips brackets whose first milestone
    /// would be 0.
    void open_bracket() {
        do {
            if (bands_.empty() || static_cast<int>(bands_.back().size()) == brackets_in_band_) {
                bands_.emplace_back();
            }
            const int number = static_cast<int>(bands_.back().size());
            bands_.back().push_back(
                first_milestone(number) == 0 ? std::nullopt : std::optional(new_bracket(number)));
        } while (!bands_.back().back());
    }

    /// Loads the next bracket of a saved band.
    void resume(const boost::json::value& saved) {
        auto& band = bands_.back();
        const int number = static_cast<int>(band.size());
        if (number >= brackets_in_band_ || saved.is_null() != (first_milestone(number) == 0)) {
            throw std::invalid_argument("the saved brackets differ");
        }
        if (saved.is_null()) {
            band.emplace_back();
            return;
        }
        band.emplace_back(new_bracket(number));
        band.back()->load(saved.as_object());
        for (const std::string& trial : band.back()->trials()) {
            place_of_[trial] = {bands_.size() - 1, band.size() - 1};
        }
    }

    [[nodiscard]] internal::Bracket* bracket_of(const std::string& trial) {
        const auto place = place_of_.find(trial);
        return place == place_of_.end() ? nullptr
                                        : &*bands_[place->second.band][place->second.bracket];
    }
    void forget(internal::Bracket& bracket, const std::string& trial) {
        bracket.remove(trial);
        place_of_.erase(trial);
    }

    /// Decides about `running`, which has just reported, once all trials of its bracket have
    /// reached the milestone; the others are paused.
    Verdict process(internal::Bracket& bracket, const std::string& running) {
        Verdict verdict = Pause{};
        if (!bracket.all_have_come()) {
            return verdict;
        }
        const auto stop = [&](const std::string& trial) {
            forget(bracket, trial);
            if (trial == running) {
                verdict = Stop{};
            } else {
                orders_.push_back({trial, Stop{}});
            }
        };
        if (bracket.finished()) {
            for (const std::string& trial : bracket.trials()) {
                stop(trial);
            }
            return verdict;
        }
        const auto [good, bad] = bracket.halve();
        std::for_each(bad.begin(), bad.end(), stop);
        for (const std::string& trial : good) {
            if (bracket.goes_on(trial)) {
                if (trial == running) {
                    verdict = GoOn{};
                } else {
                    bracket.let_go_on(trial);
                }
            } else if (bracket.finished()) {
                stop(trial);
            }
        }
        return verdict;
    }

    HyperBandOptions options_;
    internal::Reading read_;
    int brackets_in_band_ = 0;
    /// Brackets of each band; the last one of the last band is being filled.
    std::vector<std::vector<std::optional<internal::Bracket>>> bands_;
    std::map<std::string, Place> place_of_;
    std::vector<Order> orders_;
};
static_assert(Scheduler<HyperBand> && HasOrders<HyperBand>);

} // namespace rtrain::tune
