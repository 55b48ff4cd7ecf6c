// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random histories of reports, as make_ray_decisions.py draws them, and what our schedulers decide
/// in them. Now and then a scheduler is replaced by another one that loads what it has saved.
#pragma once

#include <rtrain/tune/schedule/asha.hpp>
#include <rtrain/tune/schedule/hyper_band.hpp>
#include <rtrain/tune/schedule/median_stopping.hpp>
#include <rtrain/tune/schedule/pbt.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ray_history {

/// Whether the history had a NaN or an infinity, about which rtrain does not decide as Ray.
inline bool had_odd_scores = false;

using namespace rtrain::tune;

/// splitmix64
class Draw {
public:
    explicit Draw(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        state_ += 0x9E3779B97F4A7C15U;
        std::uint64_t word = state_;
        word = (word ^ (word >> 30U)) * 0xBF58476D1CE4E5B9U;
        word = (word ^ (word >> 27U)) * 0x94D049BB133111EBU;
        return word ^ (word >> 31U);
    }
    int below(int count) { return static_cast<int>(next() % static_cast<std::uint64_t>(count)); }
    double of(std::initializer_list<double> values) {
        return values.begin()[below(static_cast<int>(values.size()))];
    }
    rtrain::ScoreOrder mode() {
        return below(2) == 0 ? rtrain::ScoreOrder::max : rtrain::ScoreOrder::min;
    }
    double unit() { return static_cast<double>(next() >> 11U) * 0x1p-53; }

    double score(int kind, int trial) {
        if (kind == 0) {
            return unit();
        }
        if (kind == 1) {
            return below(10);
        }
        if (kind == 2) {
            return trial % 7 + unit();
        }
        const int odd = below(8);
        had_odd_scores = had_odd_scores || odd < 2;
        if (odd == 0) {
            return std::numeric_limits<double>::quiet_NaN();
        }
        if (odd == 1) {
            const double infinity = std::numeric_limits<double>::infinity();
            return below(2) == 0 ? infinity : -infinity;
        }
        return below(10);
    }

private:
    std::uint64_t state_;
};

/// A scheduler that is saved and loaded as text now and then.
template <class S>
class Reborn {
public:
    Reborn(S scheduler, std::uint64_t seed, rtrain::ScoreOrder mode)
        : fresh_(std::move(scheduler)), now_(fresh_), when_(~seed), goal_{"m", mode} {
        now_.begin(goal_);
    }
    S& operator*() {
        if (when_.below(50) == 0) {
            S other = fresh_;
            other.begin(goal_);
            other.load(rtrain::json::parse(rtrain::json::serialize(now_.save())).as_object());
            now_ = std::move(other);
        }
        return now_;
    }
    S* operator->() { return &**this; }

private:
    S fresh_;
    S now_;
    Draw when_;
    Goal goal_;
};

inline TrialReport report(int trial, double time, double score, bool others_wait = false) {
    return {.trial = std::to_string(trial),
            .iteration = static_cast<std::int64_t>(time),
            .time_s = time,
            .metrics = {{"m", score}},
            .others_wait = others_wait};
}

inline char letter(const Verdict& verdict) {
    return "cpsx"[verdict.index()];
}

inline std::vector<int> numbers(int count) {
    std::vector<int> all;
    for (int number = 0; number < count; ++number) {
        all.push_back(number);
    }
    return all;
}

inline std::string asha(std::uint64_t number) {
    Draw draw(4 * number);
    const int count = 2 + draw.below(19);
    const int max_t = 1 + draw.below(100);
    const int grace = 1 + draw.below(std::min(max_t, 10));
    AshaOptions options{.max_t = static_cast<double>(max_t),
                        .grace_period = static_cast<double>(grace),
                        .reduction_factor = draw.of({2, 3, 4, 2.5, 1.5})};
    options.brackets = 1 + draw.below(3);
    options.stop_last_trials = draw.below(2) == 0;
    options.seed = number;
    const auto mode = draw.mode();
    const int kind = draw.below(4);
    Reborn scheduler(Asha(options), number, mode);
    std::vector<int> alive = numbers(count);
    for (const int trial : alive) {
        (void)scheduler->add(std::to_string(trial), {});
    }
    std::vector<double> time(static_cast<std::size_t>(count));
    std::string text;
    for (int step = 0; step < 8 * count && !alive.empty(); ++step) {
        const int at = draw.below(static_cast<int>(alive.size()));
        const int trial = alive[static_cast<std::size_t>(at)];
        double& its = time[static_cast<std::size_t>(trial)];
        its += 1 + draw.below(1 + max_t / 8);
        const TrialReport last = report(trial, its, draw.score(kind, trial));
        if (draw.below(24) == 0) {
            text += 'e';
        } else {
            text += letter(scheduler->on_result(last));
            if (text.back() != 's') {
                continue;
            }
        }
        scheduler->on_end(last.trial, TrialEnd::completed, last);
        alive.erase(alive.begin() + at);
    }
    return text;
}

inline std::string median(std::uint64_t number) {
    Draw draw(4 * number + 1);
    const int count = 2 + draw.below(12);
    MedianStoppingOptions options{.grace_period = draw.of({0, 1, 2.5, 5})};
    options.min_samples_required = 1 + draw.below(4);
    options.min_time_slice = draw.of({0, 1, 3});
    options.hard_stop = draw.below(2) == 0;
    const auto mode = draw.mode();
    const int kind = draw.below(4);
    Reborn scheduler(MedianStopping(options), number, mode);
    std::vector<int> alive = numbers(count);
    std::vector<double> time(static_cast<std::size_t>(count));
    std::string text;
    for (int step = 0; step < 10 * count && !alive.empty(); ++step) {
        const int at = draw.below(static_cast<int>(alive.size()));
        const int trial = alive[static_cast<std::size_t>(at)];
        double& its = time[static_cast<std::size_t>(trial)];
        its += draw.of({1, 1, 2, 0.5});
        const bool others_wait = draw.below(4) == 0;
        const TrialReport last = report(trial, its, draw.score(kind, trial), others_wait);
        if (draw.below(24) == 0) {
            text += 'e';
        } else {
            text += letter(scheduler->on_result(last));
            if (text.back() != 's') {
                continue;
            }
        }
        scheduler->on_end(last.trial, TrialEnd::completed, last);
        alive.erase(alive.begin() + at);
    }
    return text;
}

/// A search under HyperBand, with a few places.
class HyperBandSearch {
public:
    explicit HyperBandSearch(std::uint64_t number) : draw_(4 * number + 2), number_(number) {}

    std::string run() {
        const int max_t = 1 + draw_.below(81);
        HyperBandOptions options{.max_t = static_cast<double>(max_t),
                                 .reduction_factor = draw_.of({2, 3, 4, 2.5})};
        const int count = 1 + draw_.below(40);
        const auto slots = static_cast<std::size_t>(1 + draw_.below(6));
        options.stop_last_trials = draw_.below(2) == 0;
        const auto mode = draw_.mode();
        const int kind = draw_.below(3);
        const bool late = draw_.below(3) == 0;
        Reborn scheduler(HyperBand(options), number_, mode);
        for (int trial = late ? 1 + count / 2 : count; trial > 0; --trial) {
            add(*scheduler);
        }
        for (int step = 0; step < 200; ++step) {
            if (late && draw_.below(6) == 0 && static_cast<int>(time_.size()) < count) {
                add(*scheduler);
            }
            fill(*scheduler, slots);
            if (running_.empty()) {
                break;
            }
            const int at = draw_.below(static_cast<int>(running_.size()));
            const int trial = running_[static_cast<std::size_t>(at)];
            double& its = time_[static_cast<std::size_t>(trial)];
            if (!late && its == 0 && draw_.below(10) == 0) {
                text_ += 'e';
                scheduler->on_end(std::to_string(trial), TrialEnd::errored, std::nullopt);
                obey(*scheduler);
                running_.erase(running_.begin() + at);
                continue;
            }
            its += 1 + draw_.below(1 + max_t / 6);
            const TrialReport last = report(trial, its, draw_.score(kind, trial));
            const char verdict = letter(scheduler->on_result(last));
            obey(*scheduler);
            text_ += verdict;
            if (verdict == 'p') {
                waiting_.push_back({last.trial, true});
            } else if (verdict == 's' || its >= 2 * max_t) {
                scheduler->on_end(last.trial, TrialEnd::completed, last);
                obey(*scheduler);
            } else {
                continue;
            }
            running_.erase(running_.begin() + at);
        }
        return text_;
    }

private:
    void add(HyperBand& scheduler) {
        const std::string trial = std::to_string(time_.size());
        time_.push_back(0);
        (void)scheduler.add(trial, {});
        waiting_.push_back({trial, false});
    }
    void fill(HyperBand& scheduler, std::size_t slots) {
        while (running_.size() < slots) {
            const auto chosen = scheduler.next(waiting_);
            if (!chosen) {
                return;
            }
            text_ += "r" + *chosen;
            running_.push_back(std::stoi(*chosen));
            std::erase_if(waiting_, [&](const Candidate& it) { return it.trial == *chosen; });
        }
    }
    void obey(HyperBand& scheduler) {
        for (const Order& order : scheduler.orders()) {
            text_ += "x" + order.trial;
            std::erase_if(waiting_, [&](const Candidate& it) { return it.trial == order.trial; });
        }
    }

    Draw draw_;
    std::uint64_t number_;
    std::string text_;
    std::vector<double> time_;
    std::vector<int> running_;
    std::vector<Candidate> waiting_;
};

inline std::string hyperband(std::uint64_t number) {
    return HyperBandSearch(number).run();
}

inline std::string joined(const std::vector<std::string>& ids) {
    std::string text;
    for (const std::string& id : ids) {
        text += (text.empty() ? "" : ",") + id;
    }
    return text;
}

inline std::string pbt(std::uint64_t number) {
    Draw draw(4 * number + 3);
    const int count = 2 + draw.below(20);
    PbtOptions options{.time_attr = "training_iteration",
                       .hyperparam_mutations = {{"a", choice({1, 2, 3})}},
                       .quantile_fraction = draw.of({0, 0.25, 0.5, 0.1, 0.33})};
    const int interval = 1 + draw.below(4);
    options.perturbation_interval = interval;
    options.burn_in_period = draw.of({0, 0, 5});
    const auto mode = draw.mode();
    const int kind = draw.below(4);
    Reborn scheduler(Pbt(options), number, mode);
    std::vector<int> alive = numbers(count);
    for (const int trial : alive) {
        (void)scheduler->add(std::to_string(trial), {});
    }
    int time = 0;
    std::string text;
    for (int step = 0; step < 4 * count && !alive.empty(); ++step) {
        const int at = draw.below(static_cast<int>(alive.size()));
        const int trial = alive[static_cast<std::size_t>(at)];
        time += interval;
        const TrialReport last = report(trial, time, draw.score(kind, trial));
        if (draw.below(24) == 0) {
            text += 'e';
            scheduler->on_end(last.trial, TrialEnd::completed, last);
            alive.erase(alive.begin() + at);
        } else {
            const Verdict verdict = scheduler->on_result(last);
            if (const auto* const exploit = std::get_if<Exploit>(&verdict)) {
                scheduler->on_taken_over(last.trial, *exploit);
            }
        }
        const auto ids = scheduler->quantile_ids();
        text += joined(ids.lower) + "|" + joined(ids.upper) + ";";
    }
    return text;
}

} // namespace ray_history
