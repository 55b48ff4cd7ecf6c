// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pbt: population based training. At intervals the worst trials take over the state of one of the
/// best, and continue from it with a changed configuration. Source: Jaderberg et al., Population
/// Based Training of Neural Networks, 2017; decides as Ray Tune's PopulationBasedTraining. Cost
/// tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/tune/schedule/pbt_options.hpp>
#include <rtrain/tune/schedule/scheduler.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune {

/// The lower quantile is the ceil(n * quantile_fraction) trials with the lowest scores at their
/// last perturbation interval, at most half of n; the upper quantile is as many with the highest.
/// Trials that are over are in neither. Trials whose score is NaN are all in the lower one, where
/// Ray never replaces them. If trials wait for places, they take turns: the least advanced one
/// runs.
///
/// A trial that failed and runs again keeps its score, and others may take over its newest state
/// meanwhile; Ray forgets its score until its next perturbation interval. A trial resumed after its
/// end starts without a score here, too.
///
/// In synchronous mode, a trial that ends no longer blocks the others, where Ray would wait for it.
class Pbt {
public:
    static constexpr const char* name = "Pbt";

    /// Throws ConfigError [RT-U63] for options out of range, [RT-U66] if no hyperparameter can be
    /// mutated.
    explicit Pbt(PbtOptions options)
        : options_(std::move(options)), read_(name, options_.time_attr, options_.goal),
          random_(options_.seed),
          next_sync_(std::max(options_.perturbation_interval, options_.burn_in_period)) {
        options_.check(name);
        options_.hyperparam_mutations = internal::nested(options_.hyperparam_mutations);
    }

    /// Throws ConfigError [RT-U62].
    void begin(const Goal& goal) { read_.begin(goal); }

    [[nodiscard]] Config add(const std::string& trial, Config config) {
        config = internal::Exploration::filled(std::move(config), options_.hyperparam_mutations,
                                               random_);
        Member* const again = find(trial);
        (again ? *again : trials_.emplace_back()) = {.id = trial, .config = config};
        return config;
    }

    /// Throws ConfigError [RT-U64].
    [[nodiscard]] Verdict on_result(const TrialReport& report) {
        const auto point = read_(report, options_.require_attrs);
        Member* const member = find(report.trial);
        if (member == nullptr || !point) {
            return GoOn{};
        }
        member->iteration = report.iteration;
        if (point->time < options_.burn_in_period ||
            point->time - member->perturbed_at < options_.perturbation_interval) {
            return GoOn{};
        }
        member->score = point->score;
        member->time = point->time;
        if (options_.synch) {
            synchronize(point->time, member);
            return Pause{};
        }
        member->perturbed_at = point->time;
        const auto [lower, upper] = quantiles();
        if (!contains(lower, member)) {
            return report.others_wait ? Verdict(Pause{}) : Verdict(GoOn{});
        }
        Exploit exploit = exploit_one_of(upper, *member);
        if (!report.others_wait) {
            return exploit;
        }
        orders_.push_back({report.trial, std::move(exploit)});
        return Pause{};
    }

    void on_end(const std::string& trial, TrialEnd /*end*/,
                const std::optional<TrialReport>& /*last*/) {
        if (Member* const member = find(trial)) {
            member->over = true;
            if (options_.synch) { // may be the one that all others wait for
                double time = 0;
                for (const Member& other : trials_) {
                    time = other.over ? time : std::max(time, other.time);
                }
                synchronize(time, member);
            }
        }
    }

    [[nodiscard]] std::optional<std::string> next(std::span<const Candidate> waiting) {
        const Member* chosen = nullptr;
        for (const Candidate& candidate : waiting) {
            const Member* const member = find(candidate.trial);
            if (member != nullptr && (!options_.synch || member->time < next_sync_) &&
                (chosen == nullptr || member->time < chosen->time)) {
                chosen = member;
            }
        }
        return chosen == nullptr ? std::nullopt : std::optional(chosen->id);
    }

    [[nodiscard]] std::vector<Order> orders() { return std::exchange(orders_, {}); }

    void on_taken_over(const std::string& trial, const Exploit& exploit) {
        Member* const member = find(trial);
        const Member* const donor = find(exploit.donor);
        if (member != nullptr && donor != nullptr) {
            member->config = exploit.config;
            member->perturbed_at = donor->perturbed_at;
            member->time = donor->time;
            member->iteration = donor->iteration;
        }
    }

    /// Ids of the currently worst and best trials; worst first. For people and tests.
    struct Quantiles {
        std::vector<std::string> lower; ///< the worst
        std::vector<std::string> upper; ///< the best
    };
    /// The current quantiles.
    [[nodiscard]] Quantiles quantile_ids() {
        const auto [lower, upper] = quantiles();
        Quantiles ids;
        for (const Member* member : lower) {
            ids.lower.push_back(member->id);
        }
        for (const Member* member : upper) {
            ids.upper.push_back(member->id);
        }
        return ids;
    }

    [[nodiscard]] boost::json::object save() const;
    /// Throws ConfigError [RT-U65].
    void load(const boost::json::object& state);

private:
    struct Member {
        std::string id{};
        Config config{};
        std::optional<double> score{};
        double time = 0;         ///< at its last perturbation interval
        double perturbed_at = 0; ///< start of that interval
        std::int64_t iteration = 0;
        bool over = false;
    };
    using Members = std::vector<Member*>;

    [[nodiscard]] Member* find(const std::string& trial) {
        const auto found = std::find_if(trials_.begin(), trials_.end(), [&](const Member& member) {
            return member.id == trial && !member.over;
        });
        return found == trials_.end() ? nullptr : &*found;
    }
    [[nodiscard]] static bool contains(const Members& members, const Member* member) {
        return std::find(members.begin(), members.end(), member) != members.end();
    }

    /// Worst and best, each in the order of their scores.
    [[nodiscard]] std::pair<Members, Members> quantiles() {
        Members ranked;
        for (Member& member : trials_) {
            if (!member.over && member.score) {
                ranked.push_back(&member);
            }
        }
        std::stable_sort(ranked.begin(), ranked.end(), [](const Member* one, const Member* other) {
            return rtrain::detail::is_worse(*one->score, *other->score, ScoreOrder::max);
        });
        if (ranked.size() < 2) {
            return {};
        }
        const auto count =
            std::min(static_cast<std::ptrdiff_t>(std::ceil(static_cast<double>(ranked.size()) *
                                                           options_.quantile_fraction)),
                     static_cast<std::ptrdiff_t>(ranked.size() / 2));
        const auto numbers = std::find_if(ranked.begin(), ranked.end(), [](const Member* member) {
            return !std::isnan(*member->score);
        });
        Members best(std::max(numbers, ranked.end() - count), ranked.end());
        if (best.empty()) {
            return {};
        }
        return {Members(ranked.begin(), std::max(numbers, ranked.begin() + count)),
                std::move(best)};
    }

    /// The exploit that makes `member` take over one of `donors`.
    [[nodiscard]] Exploit exploit_one_of(const Members& donors, const Member& member) {
        const Member& donor = *donors[random_.below(donors.size())];
        const internal::Exploration explore{options_.resample_probability,
                                            options_.perturbation_factors};
        Config config = explore(donor.config, options_.hyperparam_mutations, random_);
        if (options_.custom_explore_fn) {
            config = options_.custom_explore_fn(std::move(config));
        }
        return {.donor = donor.id,
                .config = std::move(config),
                .iteration = member.iteration,
                .donor_iteration = donor.iteration,
                .donor_config = donor.config,
                .log = options_.log_config};
    }

    /// Acts once all trials but `last`, which has just reported or ended, are paused at the
    /// interval's end.
    void synchronize(double time, const Member* last) {
        bool any = false;
        for (const Member& member : trials_) {
            if (!member.over && member.time < next_sync_ && &member != last) {
                return;
            }
            any = any || !member.over;
        }
        if (!any) {
            return;
        }
        for (Member& member : trials_) {
            member.perturbed_at = time;
        }
        const auto [lower, upper] = quantiles();
        for (Member* member : lower) {
            std::string id = member->id;
            orders_.push_back({std::move(id), exploit_one_of(upper, *member)});
        }
        double furthest = 0;
        double hindmost = std::numeric_limits<double>::infinity();
        for (const Member& member : trials_) {
            if (!contains(lower, &member)) { // the others get their donors' times
                furthest = std::max(furthest, member.time);
                hindmost = member.over ? hindmost : std::min(hindmost, member.time);
            }
        }
        next_sync_ = std::max(next_sync_ + options_.perturbation_interval, furthest);
        if (hindmost >= next_sync_) { // in Ray, no trial would run again
            next_sync_ += options_.perturbation_interval;
        }
    }

    PbtOptions options_;
    internal::Reading read_;
    Random random_;
    double next_sync_;
    std::vector<Member> trials_; ///< in the order of add()
    std::vector<Order> orders_;
};

inline boost::json::object Pbt::save() const {
    boost::json::array trials;
    for (const Member& member : trials_) {
        boost::json::object saved{{"id", member.id},
                                  {"config", member.config},
                                  {"time", member.time},
                                  {"perturbed_at", member.perturbed_at},
                                  {"iteration", member.iteration},
                                  {"over", member.over}};
        if (member.score) {
            saved["score"] = *member.score;
        }
        trials.push_back(std::move(saved));
    }
    boost::json::array orders;
    for (const Order& order : orders_) {
        const auto& exploit = std::get<Exploit>(order.what);
        orders.push_back({{"trial", order.trial},
                          {"donor", exploit.donor},
                          {"config", exploit.config},
                          {"iteration", exploit.iteration},
                          {"donor_iteration", exploit.donor_iteration},
                          {"donor_config", exploit.donor_config}});
    }
    return json::finite({{"type", name},
                         {"next_sync", next_sync_},
                         {"random", random_.save()},
                         {"trials", std::move(trials)},
                         {"orders", std::move(orders)}})
        .as_object();
}

inline void Pbt::load(const boost::json::object& state) {
    internal::load_state(name, state, [&] {
        std::vector<Member> trials;
        for (const auto& value : state.at("trials").as_array()) {
            const auto& saved = value.as_object();
            trials.push_back({.id = std::string(saved.at("id").as_string()),
                              .config = saved.at("config").as_object(),
                              .time = internal::saved_number(saved.at("time")),
                              .perturbed_at = internal::saved_number(saved.at("perturbed_at")),
                              .iteration = saved.at("iteration").to_number<std::int64_t>(),
                              .over = saved.at("over").as_bool()});
            if (saved.contains("score")) {
                trials.back().score = internal::saved_number(saved.at("score"));
            }
        }
        std::vector<Order> orders;
        for (const auto& value : state.at("orders").as_array()) {
            const auto& saved = value.as_object();
            orders.push_back(
                {std::string(saved.at("trial").as_string()),
                 Exploit{.donor = std::string(saved.at("donor").as_string()),
                         .config = saved.at("config").as_object(),
                         .iteration = saved.at("iteration").to_number<std::int64_t>(),
                         .donor_iteration = saved.at("donor_iteration").to_number<std::int64_t>(),
                         .donor_config = saved.at("donor_config").as_object(),
                         .log = options_.log_config}});
        }
        Random random;
        random.load(state.at("random"));
        next_sync_ = internal::saved_number(state.at("next_sync"));
        random_ = random;
        trials_ = std::move(trials);
        orders_ = std::move(orders);
    });
}
static_assert(Scheduler<Pbt> && HasOrders<Pbt>);

} // namespace rtrain::tune
