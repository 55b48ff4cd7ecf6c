// SPDX-License-Identifier: Apache-2.0
// When a checkpoint is due that no frequency decides on.
#include <rtrain/checkpoint/store/interval.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

using rtrain::checkpoint::optimal_interval_s;

namespace {

/// A clock that a test moves, in seconds.
struct Clock {
    using duration = std::chrono::duration<double>;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<Clock>;
    static constexpr bool is_steady = true;
    static time_point now() { return time_point(duration(seconds)); }
    static inline double seconds = 0;
};
using Interval = rtrain::checkpoint::Interval<Clock>;

/// A checkpoint that training waits for.
void save(Interval& interval, double cost_s) {
    const auto begin = Clock::now();
    Clock::seconds += cost_s;
    interval.saved(begin);
}

/// The seconds that a run of `work_s` seconds of work takes, with a checkpoint of cost `cost_s`
/// after each `every_s` of work, and failures at random.
double run_s(double work_s, double every_s, double cost_s, double mean_time_between_failures_s) {
    std::mt19937_64 random(7);
    std::exponential_distribution<double> gap(1 / mean_time_between_failures_s);
    double now = 0;
    double done = 0;
    for (double failure = gap(random); done < work_s;) {
        const double next = std::min(every_s, work_s - done) + cost_s;
        if (now + next > failure) { // what was done since the checkpoint is lost
            now = failure;
            failure += gap(random);
        } else {
            now += next;
            done += next - cost_s;
        }
    }
    return now;
}

} // namespace

TEST_CASE("Interval.is_that_of_young_and_daly") {
    CHECK(optimal_interval_s(0.5, 100) == doctest::Approx(10));
    CHECK(optimal_interval_s(120, 24 * 3600) == doctest::Approx(4553.7).epsilon(1e-4));
    CHECK(optimal_interval_s(0, 60) == 0);
    CHECK(optimal_interval_s(90, 60) == 60); // no longer than failures take to come
}

TEST_CASE("Interval.loses_less_than_others") {
    for (const double cost_s : {0.05, 0.5, 2.0}) {
        const double best_s = optimal_interval_s(cost_s, 60);
        const double best = run_s(1e6, best_s, cost_s, 60);
        CHECK(best < run_s(1e6, best_s / 3, cost_s, 60));
        CHECK(best < run_s(1e6, best_s * 3, cost_s, 60));
    }
}

TEST_CASE("Interval.first_checkpoint_is_due_after_that_of_the_assumed_cost") {
    Clock::seconds = 1000;
    const Interval interval(80);
    const double first_s = std::sqrt(2 * Interval::assumed_cost_s * 80);
    CHECK(!interval.is_due());
    Clock::seconds += 0.99 * first_s;
    CHECK(!interval.is_due());
    Clock::seconds += 0.02 * first_s;
    CHECK(interval.is_due());
    CHECK(interval.is_due()); // until it is made
}

TEST_CASE("Interval.counts_from_the_end_of_a_checkpoint_and_follows_its_cost") {
    Interval interval(100);
    Clock::seconds += 60;
    save(interval, 8.1); // with what the first takes once
    CHECK(interval.cost_s() == doctest::Approx(Interval::assumed_cost_s + 2));
    save(interval, 2);
    CHECK(interval.cost_s() == doctest::Approx(2));
    CHECK(interval.seconds() == doctest::Approx(20));
    Clock::seconds += 19.9;
    CHECK(!interval.is_due());
    Clock::seconds += 0.2;
    CHECK(interval.is_due());
    save(interval, 6); // a slow one counts for a quarter
    CHECK(!interval.is_due());
    CHECK(interval.cost_s() == doctest::Approx(3));
    for (int i = 0; i < 30; ++i) {
        save(interval, 0.5);
    }
    CHECK(interval.seconds() == doctest::Approx(10).epsilon(1e-3));
}
