// SPDX-License-Identifier: Apache-2.0
// When RunConfig::stop says that a run ends; what follows is in run/stop_ranks_test.cpp.
#include "support/thrown.hpp"

#include <rtrain/run/stop_judge.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace rtrain;
using test::code_of;
using Values = std::vector<double>;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

Config line(std::int64_t iteration, double loss, double seconds = 1) {
    return {{"loss", loss}, {"training_iteration", iteration}, {"time_total_s", seconds}};
}

/// The number of the report that a run stops at which reports these losses; 0 if it does not stop.
std::int64_t stops_at(const stop::Conditions& conditions, const Values& losses) {
    StopJudge judge(conditions);
    for (std::size_t i = 0; i < losses.size(); ++i) {
        const auto number = static_cast<std::int64_t>(i) + 1;
        judge.hear(line(number, losses[i], static_cast<double>(number)));
        if (judge.stops()) {
            return number;
        }
    }
    return 0;
}

std::string reason_at_end(const stop::Conditions& conditions, const Values& losses) {
    StopJudge judge(conditions);
    for (std::size_t i = 0; i < losses.size(); ++i) {
        judge.hear(line(static_cast<std::int64_t>(i) + 1, losses[i]));
    }
    return judge.reason();
}

std::string wrong_with(const stop::Conditions& conditions) {
    try {
        rtrain::detail::check_stop(conditions);
    } catch (const ConfigError& error) {
        CHECK(error.code() == "RT-C31");
        return error.message();
    }
    return "";
}

} // namespace

TEST_CASE("Stop.iterations_are_counted_from_the_beginning_of_the_run") {
    CHECK(stops_at(stop::MaxIterations{3}, {9, 9, 9, 9}) == 3);
    CHECK(stops_at(stop::MaxIterations{5}, {9, 9, 9, 9}) == 0);
    StopJudge judge(stop::MaxIterations{7}); // of a log that has lost lines
    judge.hear(line(6, 1));
    CHECK(!judge.stops());
    judge.hear(line(9, 1));
    CHECK(judge.stops());
}

TEST_CASE("Stop.time_is_that_of_all_starts_without_what_is_between_them") {
    const stop::Conditions minute = stop::MaxTime{60};
    StopJudge judge(minute);
    judge.hear(line(1, 0, 40));
    CHECK(!judge.stops());
    StopJudge later(minute); // the run rests for 200 s, is taken up, and trains for 10
    later.hear(line(1, 0, 40));
    later.hear_time(50);
    CHECK(!later.stops());
    later.hear(line(2, 0, 62));
    CHECK(later.stops());
    StopJudge expired(minute);
    expired.hear(line(1, 0, 40));
    expired.hear(line(2, 0, 62));
    CHECK(expired.reason() == "MaxTime: 60 s");
    StopJudge between(minute);
    between.hear(line(1, 0, 40));
    between.hear_time(60);
    CHECK(between.stops());
    CHECK(StopJudge({stop::MaxTime{60}, stop::MaxTime{5}}).time_limit_s() == 5);
}

TEST_CASE("Stop.a_threshold_counts_in_its_direction") {
    using stop::Direction;
    const stop::Threshold up{.metric = "loss", .bound = 2};
    const stop::Threshold down{.metric = "loss", .bound = 2, .direction = Direction::at_most};
    CHECK(stops_at(up, {1, 1.99, not_a_number, 2, 3}) == 4);
    CHECK(stops_at(down, {3, 2.01, not_a_number, 2, 1}) == 4);
    CHECK(stops_at(up, {not_a_number, not_a_number}) == 0);
    CHECK(reason_at_end(up, {2.5}) == "Threshold: loss is 2.5, at least 2");
}

TEST_CASE("Stop.early_stopping_waits_for_an_improvement_that_counts") {
    using Early = stop::EarlyStopping;
    CHECK(stops_at(Early{.metric = "loss", .patience = 2}, {5, 4, 4, 3, 3, 3}) == 6);
    CHECK(stops_at(Early{.metric = "loss", .patience = 1}, {5, 4, 3, 3}) == 4);
    CHECK(stops_at(Early{.metric = "loss", .patience = 2, .min_delta = 1}, {5, 4, 4.5, 3}) == 3);
    CHECK(stops_at(Early{.metric = "loss", .patience = 2, .min_delta = 1}, {5, 3, 1, 0.5, 0}) == 5);
    CHECK(stops_at(Early{.metric = "loss", .mode = "max", .patience = 2}, {1, 2, 2, 3, 1, 3}) == 6);
    CHECK(stops_at(Early{.metric = "loss", .patience = 3},
                   {not_a_number, not_a_number, not_a_number}) == 3);
    CHECK(stops_at(Early{.metric = "loss", .patience = 3},
                   {not_a_number, not_a_number, 1, not_a_number, not_a_number, not_a_number}) == 6);
    CHECK(reason_at_end(Early{.metric = "loss", .patience = 2}, {0.25, 1, 2}) ==
          "EarlyStopping: loss has not improved on 0.25 in 2 reports");
}

TEST_CASE("Stop.a_plateau_is_what_ray_takes_for_one") {
    using Plateau = stop::TrialPlateau;
    CHECK(stops_at(Plateau{.metric = "loss"}, {1, 1, 1, 1, 1}) == 4);
    CHECK(stops_at(Plateau{.metric = "loss"}, {9, 1, 1, 1, 1, 1}) == 5);
    CHECK(stops_at(Plateau{.metric = "loss", .num_results = 2}, {1, 1, 1, 1}) == 4); // grace
    CHECK(stops_at(Plateau{.metric = "loss", .num_results = 2, .grace_period = 0}, {1, 1}) == 2);
    // numpy.std of {1, 1.02} is 0.01, which is not less
    CHECK(stops_at(Plateau{.metric = "loss", .std = 0.0099, .num_results = 2, .grace_period = 0},
                   {1, 1.02, 1.02}) == 3);
    CHECK(stops_at(Plateau{.metric = "loss", .std = 0.0101, .num_results = 2, .grace_period = 0},
                   {1, 1.02}) == 2);
    CHECK(stops_at(Plateau{.metric = "loss", .metric_threshold = 0.5, .mode = "min"},
                   {1, 1, 1, 1, 0.4, 0.4, 0.4, 0.4}) == 8);
    CHECK(stops_at(Plateau{.metric = "loss", .metric_threshold = 0.5, .mode = "max"},
                   {0.4, 0.4, 0.4, 0.4, 1, 1, 1, 1}) == 8);
    CHECK(stops_at(Plateau{.metric = "loss"},
                   {not_a_number, not_a_number, not_a_number, not_a_number, not_a_number}) == 0);
}

TEST_CASE("Stop.the_first_of_several_conditions_counts") {
    const stop::Conditions both = {stop::MaxIterations{4},
                                   stop::Threshold{.metric = "loss", .bound = 9}};
    CHECK(stops_at(both, {1, 1, 9, 1}) == 3);
    CHECK(stops_at(both, {1, 1, 1, 1}) == 4);
    CHECK(stops_at({}, Values(1000, 1)) == 0);
    CHECK(reason_at_end(both, {9, 1, 1, 1, 1}) == "Threshold: loss is 9, at least 9");
}

TEST_CASE("Stop.a_function_with_a_state_begins_anew_each_time") {
    int asked = 0;
    const stop::Conditions third = [seen = 0, &asked](const Config& report) mutable {
        ++asked;
        return report.contains("loss") && ++seen == 3;
    };
    CHECK(stops_at(third, {1, 1, 1, 1}) == 3);
    CHECK(stops_at(third, {1, 1, 1, 1}) == 3);
    CHECK(asked == 6); // not again once it has said so
    CHECK(reason_at_end(third, {1, 1, 1}) == "a function of RunConfig::stop");
}

TEST_CASE("Stop.what_cannot_judge_says_its_name_and_the_metric") {
    const auto told = [](const stop::Conditions& conditions) {
        StopJudge judge(conditions);
        try {
            judge.hear(line(4, 1));
        } catch (const ConfigError& error) {
            CHECK(error.code() == "RT-C32");
            return error.message();
        }
        return std::string();
    };
    for (const stop::Conditions& conditions : {stop::Conditions(stop::Threshold{.metric = "los"}),
                                               {stop::EarlyStopping{.metric = "los"}},
                                               {stop::TrialPlateau{.metric = "los"}}}) {
        const std::string text = told(conditions);
        CAPTURE(text);
        CHECK(text.starts_with(rtrain::detail::name_of(*conditions.begin()) +
                               " cannot evaluate report 4: "));
        CHECK(test::contains(text, "no number \"los\""));
        CHECK(test::contains(text, "loss"));
    }
    CHECK(told([](const Config&) -> bool { throw std::runtime_error("torn"); }) ==
          "a function of RunConfig::stop cannot evaluate report 4: torn");
    CHECK(test::contains(told([](const Config&) -> bool { throw 3; }),
                         "an object of type int, 3, which is not derived from std::exception"));
}

TEST_CASE("Stop.bad_options_are_errors") {
    using namespace stop;
    using test::contains;
    CHECK(contains(wrong_with(MaxIterations{}), "stop::MaxIterations: count is 0"));
    for (const double seconds :
         {0.0, -1.0, not_a_number, std::numeric_limits<double>::infinity()}) {
        CHECK(contains(wrong_with(MaxTime{seconds}), "stop::MaxTime: seconds is"));
    }
    CHECK(contains(wrong_with(Threshold{.bound = 1}), "stop::Threshold: metric is empty"));
    CHECK(contains(wrong_with(Threshold{.metric = "a", .bound = not_a_number}), "bound is NaN"));
    CHECK(contains(wrong_with(EarlyStopping{}), "metric is empty"));
    CHECK(contains(wrong_with(EarlyStopping{.metric = "a", .patience = 0}), "patience is 0"));
    CHECK(contains(wrong_with(EarlyStopping{.metric = "a", .min_delta = -1}), "min_delta is -1"));
    CHECK(contains(wrong_with(EarlyStopping{.metric = "a", .min_delta = not_a_number}),
                   "min_delta is"));
    CHECK(contains(wrong_with(TrialPlateau{}), "metric is empty"));
    CHECK(contains(wrong_with(TrialPlateau{.metric = "a", .std = not_a_number}), "std is"));
    CHECK(contains(wrong_with(TrialPlateau{.metric = "a", .num_results = 0}), "num_results is 0"));
    CHECK(contains(wrong_with(TrialPlateau{.metric = "a", .grace_period = -1}), "grace_period"));
    CHECK(contains(
        wrong_with(TrialPlateau{.metric = "a", .metric_threshold = not_a_number, .mode = "min"}),
        "metric_threshold is NaN"));
    CHECK(contains(wrong_with(TrialPlateau{.metric = "a", .metric_threshold = 1}), "mode is not"));
    CHECK(contains(wrong_with(Function()), "the function is empty"));
    // Each of several is looked at, and sound ones pass.
    CHECK(contains(wrong_with({MaxIterations{1}, MaxTime{}}), "MaxTime"));
    CHECK(wrong_with({MaxIterations{1}, MaxTime{1}, Threshold{.metric = "a"},
                      EarlyStopping{.metric = "a"}, TrialPlateau{.metric = "a"},
                      [](const Config&) { return false; }}) == "");
}
