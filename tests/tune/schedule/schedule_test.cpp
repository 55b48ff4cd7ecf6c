// SPDX-License-Identifier: Apache-2.0
// What schedulers decide: the cases of Ray Tune's own tests, and 10,000 random histories of each
// kind that Ray Tune 2.60.0 has judged (make_ray_decisions.py).
#include "ray_history.hpp"
#include "support/capture.hpp"
#include "support/thrown.hpp"

#include <rtrain/tune/schedule/fifo.hpp>
#include <rtrain/tune/schedule/pbt_replay.hpp>
#include <rtrain/tune/schedule/stoppers.hpp>

#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <vector>

using namespace rtrain::tune;
using ray_history::report;
using test::code_of;
using test::contains;
using test::message_of;

namespace {

const Goal goal{"m"};
const double not_a_number = std::numeric_limits<double>::quiet_NaN();

template <class S>
S begun(S scheduler, const Goal& its = goal) {
    scheduler.begin(its);
    return scheduler;
}

/// 'c' go on, 'p' pause, 's' stop, 'x' exploit
template <class S>
char says(S& scheduler, int trial, double time, double score, bool others_wait = false) {
    return ray_history::letter(scheduler.on_result(report(trial, time, score, others_wait)));
}

template <class S>
void ends(S& scheduler, int trial, double time, double score) {
    scheduler.on_end(std::to_string(trial), TrialEnd::completed, report(trial, time, score));
}

template <class S>
void add(S& scheduler, int count, const rtrain::Config& config = {}) {
    for (int trial = 0; trial < count; ++trial) {
        (void)scheduler.add(std::to_string(trial), config);
    }
}

/// Trial 0 reports 0, 100, ..., 900, and trial 1 five times 450, as in Ray's tests.
template <class S>
void two_trials(S& scheduler) {
    add(scheduler, 2);
    for (int i = 0; i < 10; ++i) {
        CHECK(says(scheduler, 0, i, i * 100) == 'c');
    }
    for (int i = 0; i < 5; ++i) {
        CHECK(says(scheduler, 1, i, 450) == 'c');
    }
}

} // namespace

TEST_CASE("Schedule.a_time_that_no_report_has_is_told_once") {
    const auto told = [](auto scheduler) {
        test::Stderr said;
        scheduler.begin(goal);
        add(scheduler, 2);
        for (int i = 1; i < 4; ++i) {
            CHECK(says(scheduler, 0, i, 0) == 'c');
        }
        return said.text();
    };
    for (const std::string& text : {told(Asha({.time_attr = "training_iteratoin"})),
                                    told(MedianStopping({.time_attr = "training_iteratoin"}))}) {
        CAPTURE(text);
        CHECK(test::count_of(text, "has reported no number \"training_iteratoin\"") == 1);
    }
    CHECK(told(Asha()).empty());
}

TEST_CASE("Schedule.decides_as_ray_in_random_histories") {
    std::ifstream file(RTRAIN_TUNE_DATA "/ray_decisions.bin", std::ios::binary);
    const std::string recorded{std::istreambuf_iterator<char>(file), {}};
    constexpr std::size_t histories = 10000;
    REQUIRE(recorded.size() == 4 * histories * 2);
    std::string (*const kinds[])(std::uint64_t) = {ray_history::asha, ray_history::median,
                                                   ray_history::hyperband, ray_history::pbt};
    for (std::size_t kind = 0; kind < 4; ++kind) {
        std::map<char, int> seen;
        std::size_t compared = 0;
        for (std::size_t number = 0; number < histories; ++number) {
            ray_history::had_odd_scores = false;
            const std::string text = kinds[kind](number);
            if (ray_history::had_odd_scores) {
                continue;
            }
            ++compared;
            const auto sum = crc32(0, reinterpret_cast<const Bytef*>(text.data()),
                                   static_cast<uInt>(text.size()));
            const std::size_t at = 2 * (kind * histories + number);
            const unsigned expected = static_cast<unsigned char>(recorded[at]) |
                                      static_cast<unsigned char>(recorded[at + 1]) << 8U;
            CAPTURE(kind);
            CAPTURE(number);
            REQUIRE((sum & 0xffffU) == expected);
            for (const char letter : text) {
                ++seen[letter];
            }
        }
        CHECK(compared > 7000);
        if (kind < 3) { // else nothing has been compared
            CHECK(std::min(seen['c'], seen['s']) > 1000);
        }
    }
}

TEST_CASE("Schedule.asha_has_rays_cases") {
    SUBCASE("a trial that completes counts") {
        auto asha = begun(Asha({.max_t = 10}));
        two_trials(asha);
        (void)asha.add("2", {});
        ends(asha, 2, 10, 1000);
        CHECK(says(asha, 1, 101, 0) == 's');
    }
    SUBCASE("none stops before the grace period") {
        auto asha = begun(Asha({.grace_period = 2.5, .reduction_factor = 3}));
        two_trials(asha);
        ends(asha, 0, 10, 1000);
        ends(asha, 1, 10, 1000);
        (void)asha.add("2", {});
        CHECK(says(asha, 2, 1, 10) == 'c');
        CHECK(says(asha, 2, 2, 10) == 'c');
        CHECK(says(asha, 2, 3, 10) == 's');
    }
    SUBCASE("all stop at max_t, in whatever bracket") {
        auto asha = begun(Asha({.max_t = 10, .brackets = 10}));
        add(asha, 10);
        for (int trial = 0; trial < 10; ++trial) {
            CHECK(says(asha, trial, 10, -2) == 's');
        }
    }
    SUBCASE("260 is below the median of a rung") {
        auto asha = begun(Asha({.max_t = 10, .reduction_factor = 2}));
        two_trials(asha);
        ends(asha, 0, 10, 1000);
        ends(asha, 1, 10, 1000);
        (void)asha.add("2", {});
        CHECK(says(asha, 2, 1, 260) == 's');
        CHECK(says(asha, 2, 2, 260) == 's');
    }
    SUBCASE("a NaN stops at its next rung, and counts as the worst") {
        auto asha = begun(Asha({.max_t = 10, .grace_period = 2, .reduction_factor = 2}));
        add(asha, 4);
        CHECK(says(asha, 0, 1, not_a_number) == 'c');
        CHECK(says(asha, 0, 2, not_a_number) == 's'); // also when it is the first there
        CHECK(says(asha, 1, 2, -5) == 'c');
        CHECK(says(asha, 2, 2, not_a_number) == 's');
        CHECK(says(asha, 3, 2, -1e300) == 'c'); // half of the others are worse
        CHECK(says(asha, 1, 4, not_a_number) == 's');
    }
    SUBCASE("what a failed trial has reported counts as the worst") {
        auto asha = begun(Asha({.max_t = 10, .reduction_factor = 2}));
        add(asha, 3);
        CHECK(says(asha, 0, 1, 1000) == 'c');
        asha.on_end("0", TrialEnd::errored, std::nullopt);
        CHECK(says(asha, 1, 1, 1) == 'c');
        CHECK(says(asha, 2, 1, 0) == 'c'); // the quantile is between the failure and 1
    }
    SUBCASE("what is loaded goes on") {
        auto asha = begun(Asha({.max_t = 10, .reduction_factor = 2}));
        add(asha, 10);
        for (int trial = 0; trial < 5; ++trial) {
            CHECK(says(asha, trial, 1, 10) == 'c');
        }
        CHECK(says(asha, 5, 1, 5) == 's');
        auto other = begun(Asha({.max_t = 10, .reduction_factor = 2}));
        other.load(asha.save());
        CHECK(says(other, 6, 1, 4) == 's');
        (void)other.add("10", {});
        CHECK(says(other, 10, 1, 2) == 's');
    }
    SUBCASE("the last ones go on when they may") {
        auto asha = begun(Asha({.max_t = 3, .reduction_factor = 2, .stop_last_trials = false}));
        add(asha, 4);
        CHECK(says(asha, 0, 2, 10) == 'c');
        CHECK(says(asha, 1, 2, 8) == 's');
        CHECK(says(asha, 2, 2, 6) == 's');
        CHECK(says(asha, 3, 2, 4) == 's');
        CHECK(says(asha, 0, 4, 10) == 'c');
        CHECK(says(asha, 0, 8, 10) == 'c');
        CHECK(says(asha, 0, 14, 1) == 'c');
    }
    SUBCASE("the smaller is better in mode min, a nested metric is read, and one is lacking") {
        auto asha = begun(Asha({.reduction_factor = 2}), {"a/b", rtrain::ScoreOrder::min});
        add(asha, 3);
        const auto hear = [&](const char* trial, double loss) {
            return asha
                .on_result({.trial = trial, .iteration = 1, .metrics = {{"a", {{"b", loss}}}}})
                .index();
        };
        CHECK(hear("0", 1) == 0);
        CHECK(hear("1", 3) == 2);
        CHECK(hear("2", 0.5) == 0);
        CHECK(asha.on_result({.trial = "1", .iteration = 2, .metrics = {{"c", 1}}}).index() == 0);
    }
}

TEST_CASE("Schedule.median_has_rays_cases") {
    const auto median = [](double grace, int samples, bool hard = true) {
        return begun(MedianStopping(
            {.grace_period = grace, .min_samples_required = samples, .hard_stop = hard}));
    };
    SUBCASE("a constant one stops only when it is worse than the mean of the other") {
        auto rule = median(0, 1);
        two_trials(rule);
        ends(rule, 0, 10, 1000);
        CHECK(says(rule, 1, 5, 450) == 'c');
        CHECK(says(rule, 1, 6, 0) == 'c');
        CHECK(says(rule, 1, 10, 450) == 's');
    }
    SUBCASE("only trials that have come so far count") {
        auto rule = median(0, 1);
        two_trials(rule);
        CHECK(says(rule, 1, 100, 0) == 'c');
        ends(rule, 0, 101, 1000);
        CHECK(says(rule, 1, 101, 0) == 's');
    }
    SUBCASE("grace period") {
        auto rule = median(2.5, 1);
        two_trials(rule);
        ends(rule, 0, 10, 1000);
        ends(rule, 1, 10, 1000);
        CHECK(says(rule, 2, 1, 10) == 'c');
        CHECK(says(rule, 2, 2, 10) == 'c');
        CHECK(says(rule, 2, 3, 10) == 's');
    }
    SUBCASE("too few samples") {
        auto rule = median(0, 2);
        two_trials(rule);
        ends(rule, 0, 10, 1000);
        CHECK(says(rule, 2, 5, 10) == 'c');
        ends(rule, 1, 5, 1000);
        CHECK(says(rule, 2, 5, 10) == 's');
    }
    SUBCASE("it is a median, and a soft stop pauses once") {
        auto rule = median(0, 1, false);
        two_trials(rule);
        ends(rule, 0, 10, 1000);
        ends(rule, 1, 10, 1000);
        CHECK(says(rule, 2, 1, 260) == 'c');
        CHECK(says(rule, 2, 2, 260) == 'p');
        CHECK(says(rule, 2, 3, 0) == 'c');
    }
}

namespace {

/// HyperBand(81, 3) with its first bands full: 5, 8, 15, 34 and 81 trials.
HyperBand full_band() {
    auto hyperband = begun(HyperBand());
    add(hyperband, 5 + 8 + 15 + 34 + 81);
    return hyperband;
}

std::vector<std::string> stopped_by(HyperBand& hyperband) {
    std::vector<std::string> trials;
    for (const Order& order : hyperband.orders()) {
        trials.push_back(order.trial);
    }
    return trials;
}

} // namespace

TEST_CASE("Schedule.hyperband_has_rays_brackets_and_halves_them") {
    HyperBand hyperband = full_band();
    std::vector<int> sizes;
    const auto saved = hyperband.save();
    for (const auto& bracket : saved.at("bands").as_array().at(0).as_array()) {
        sizes.push_back(bracket.as_object().at("size").to_number<int>());
    }
    CHECK(sizes == std::vector<int>{5, 8, 15, 34, 81});
    std::vector<int> alive;
    for (int trial = 62; trial < 143; ++trial) { // the bracket of 81
        alive.push_back(trial);
    }
    for (const int milestone : {1, 3, 9, 27}) {
        for (std::size_t at = 0; at + 1 < alive.size(); ++at) {
            CHECK(says(hyperband, alive[at], milestone, static_cast<double>(at)) == 'p');
        }
        CHECK(says(hyperband, alive.back(), milestone, 1000) == 'c');
        const auto stopped = stopped_by(hyperband);
        CHECK(stopped.size() == alive.size() - alive.size() / 3);
        CHECK(stopped.front() == std::to_string(alive.front()));
        alive.erase(alive.begin(), alive.begin() + static_cast<std::ptrdiff_t>(stopped.size()));
    }
    CHECK(alive.size() == 1);
    CHECK(says(hyperband, alive[0], 81, 1) == 's');
}

TEST_CASE("Schedule.hyperband_halves_when_the_last_of_a_bracket_ends") {
    auto hyperband = begun(HyperBand());
    add(hyperband, 5 + 8);
    for (int trial = 5; trial < 12; ++trial) {
        CHECK(says(hyperband, trial, 27, trial) == 'p');
    }
    SUBCASE("with an error") {
        hyperband.on_end("12", TrialEnd::errored, std::nullopt);
    }
    SUBCASE("by itself") {
        ends(hyperband, 12, 2, 1);
    }
    CHECK(stopped_by(hyperband) == std::vector<std::string>{"5", "6", "7", "8"});
    // Only those that are left may go on.
    std::vector<Candidate> waiting;
    for (int trial = 9; trial < 12; ++trial) {
        waiting.push_back({std::to_string(trial), true});
    }
    CHECK(hyperband.next(waiting) == "9");
    CHECK(says(hyperband, 9, 28, 1) == 'c');
    waiting.erase(waiting.begin());
    CHECK(hyperband.next(waiting) == "10");
    CHECK(hyperband.next({}) == std::nullopt);
}

TEST_CASE("Schedule.hyperband_leaves_nobody_waiting_behind_its_first_halving") {
    auto hyperband = begun(HyperBand({.max_t = 8, .reduction_factor = 2}));
    add(hyperband, 4 + 4 + 6); // the last bracket halves at 2, 4 and 8
    for (int trial = 8; trial < 13; ++trial) {
        CHECK(says(hyperband, trial, 2, trial) == 'p');
    }
    CHECK(says(hyperband, 13, 2, 13) == 'c');
    CHECK(stopped_by(hyperband).size() == 3);
    CHECK(says(hyperband, 11, 4, 1) == 'p');
    CHECK(says(hyperband, 12, 4, 2) == 'p');
    hyperband.on_end("13", TrialEnd::errored, std::nullopt);
    const Candidate waiting[] = {{"11", true}, {"12", true}};
    CHECK(hyperband.next(waiting).has_value()); // in Ray, they wait for ever
}

TEST_CASE("Schedule.hyperband_stops_at_max_t_unless_told_otherwise") {
    for (const bool stop_last : {true, false}) {
        auto hyperband =
            begun(HyperBand({.max_t = 8, .reduction_factor = 2, .stop_last_trials = stop_last}));
        add(hyperband, 8);
        for (int trial = 0; trial < 4; ++trial) { // no halving: 4 trials to 8
            CHECK(says(hyperband, trial, 4, trial) == 'c');
        }
        CHECK(says(hyperband, 4, 4, 10) == 'p');
        CHECK(says(hyperband, 5, 4, 20) == 'p');
        CHECK(says(hyperband, 6, 4, 30) == 'p');
        CHECK(says(hyperband, 7, 4, 40) == 'c');
        CHECK(stopped_by(hyperband) == std::vector<std::string>{"4", "5"});
        const char others = stop_last ? 'p' : 'c';
        CHECK(says(hyperband, 0, 8, 10) == others);
        CHECK(says(hyperband, 1, 8, 10) == others);
        CHECK(says(hyperband, 2, 8, 10) == others);
        CHECK(says(hyperband, 3, 8, 10) == (stop_last ? 's' : 'c'));
        CHECK(stopped_by(hyperband).size() == (stop_last ? 3 : 0));
    }
}

TEST_CASE("Schedule.hyperband_ranks_nan_lowest_and_wants_its_metric") {
    auto hyperband = begun(HyperBand({.max_t = 8, .reduction_factor = 2}));
    add(hyperband, 8);
    CHECK(says(hyperband, 4, 4, not_a_number) == 'p');
    CHECK(says(hyperband, 5, 4, -std::numeric_limits<double>::infinity()) == 'p');
    CHECK(says(hyperband, 6, 4, 1) == 'p');
    CHECK(says(hyperband, 7, 4, not_a_number) == 's');
    CHECK(stopped_by(hyperband) == std::vector<std::string>{"4"});
    const TrialReport other{.trial = "0", .iteration = 1, .metrics = {{"loss", 1}, {"lr", 2}}};
    CHECK(hyperband.on_result(other).index() == 0); // skipped
    auto strict = begun(HyperBand({.max_t = 8, .reduction_factor = 2, .require_attrs = true}));
    add(strict, 1);
    CHECK(contains(message_of([&] { (void)strict.on_result(other); }), "loss, lr"));
    CHECK(code_of([&] { (void)strict.on_result(other); }) == "RT-U64");
}

TEST_CASE("Schedule.a_time_that_no_report_has_is_a_warning_once") {
    test::Stderr captured;
    auto asha = begun(Asha({.time_attr = "epochs"}));
    add(asha, 1);
    CHECK(says(asha, 0, 1, 1) == 'c');
    CHECK(says(asha, 0, 2, 1) == 'c');
    const std::string text = captured.text();
    CHECK(contains(text, "\"epochs\""));
    CHECK(contains(text, "RT-U64"));
    CHECK(text.find("RT-U64") == text.rfind("RT-U64"));
}

namespace {

Pbt population(PbtOptions options, int trials = 5) {
    options.time_attr = "training_iteration";
    options.perturbation_interval = 10;
    if (options.hyperparam_mutations.empty()) {
        options.hyperparam_mutations = {{"float", sample_from([](const auto&) { return 100.0; })},
                                        {"int", sample_from([](const auto&) { return 10; })},
                                        {"id", choice({100})}};
    }
    auto pbt = begun(Pbt(options));
    for (int trial = 0; trial < trials; ++trial) {
        (void)pbt.add(std::to_string(trial),
                      {{"float", 2.0}, {"const", 3}, {"int", 10}, {"id", trial}});
    }
    return pbt;
}

/// With the scores 0, 50, ... at 10.
Pbt begun_population(PbtOptions options = {.resample_probability = 0}) {
    Pbt pbt = population(std::move(options));
    for (int trial = 0; trial < 5; ++trial) {
        (void)pbt.on_result(report(trial, 10, 50 * trial));
    }
    (void)pbt.orders();
    return pbt;
}

Exploit wanted_of(Pbt& pbt, int trial, double time, double score) {
    const Verdict verdict = pbt.on_result(report(trial, time, score));
    REQUIRE(std::holds_alternative<Exploit>(verdict));
    return std::get<Exploit>(verdict);
}

/// The same, done.
Exploit exploit_of(Pbt& pbt, int trial, double time, double score) {
    Exploit exploit = wanted_of(pbt, trial, time, score);
    pbt.on_taken_over(std::to_string(trial), exploit);
    return exploit;
}

} // namespace

TEST_CASE("Schedule.pbt_perturbs_low_performers_as_in_rays_cases") {
    SUBCASE("only at an interval's end, from one of the best") {
        Pbt pbt = begun_population();
        CHECK(says(pbt, 0, 15, -100) == 'c');
        const Exploit exploit = exploit_of(pbt, 0, 20, -100);
        CHECK((exploit.donor == "3" || exploit.donor == "4"));
        CHECK(exploit.iteration == 20);
        CHECK(exploit.donor_iteration == 10);
        CHECK(exploit.donor_config.at("id") == std::stoi(exploit.donor));
        CHECK(exploit_of(pbt, 2, 20, 40).log);
    }
    SUBCASE("values: floats and integers times a factor, what is no choice any more is drawn") {
        Pbt pbt = begun_population();
        const Exploit exploit = exploit_of(pbt, 0, 20, -100);
        const double factor = exploit.config.at("float").as_double();
        CHECK((factor == 2.4 || factor == 1.6));
        CHECK(exploit.config.at("const") == 3);
        CHECK(exploit.config.at("id") == 100);
        REQUIRE(exploit.config.at("int").is_int64());
        CHECK((exploit.config.at("int") == 8 || exploit.config.at("int") == 12));
    }
    SUBCASE("always another draw") {
        Pbt pbt = begun_population({.resample_probability = 1});
        const Exploit exploit = exploit_of(pbt, 0, 20, -100);
        CHECK(exploit.config.at("float") == 100.0);
        CHECK(exploit.config.at("int") == 10);
    }
    SUBCASE("a function has the last word") {
        Pbt pbt = begun_population({.custom_explore_fn = [](rtrain::Config config) {
            config["float"] = -1;
            return config;
        }});
        CHECK(exploit_of(pbt, 0, 20, -100).config.at("float") == -1);
    }
    SUBCASE("the interval begins with the donor's") {
        Pbt pbt = begun_population();
        (void)exploit_of(pbt, 0, 20, -100); // both donors' intervals have begun at 10
        CHECK(says(pbt, 0, 19, -100) == 'c');
        (void)exploit_of(pbt, 0, 20, -100);
    }
}

TEST_CASE("Schedule.pbt_shifts_choices_to_neighbours") {
    PbtOptions options{.hyperparam_mutations = {{"c", choice({1, 2, 4, 8})},
                                                {"net", Space{{"d", choice({"a", "b", "c"})}}}},
                       .resample_probability = 0};
    options.time_attr = "training_iteration";
    options.perturbation_interval = 1;
    auto pbt = begun(Pbt(options));
    const rtrain::Config config{{"c", 8}, {"net", {{"d", "b"}}}};
    add(pbt, 2, config);
    std::map<std::string, int> seen;
    for (int time = 1; time < 200; ++time) {
        CHECK(says(pbt, 1, time, 1) == 'c');
        const Verdict verdict = pbt.on_result(report(0, time, 0));
        if (const auto* const exploit = std::get_if<Exploit>(&verdict)) {
            pbt.on_taken_over("0", *exploit);
            ++seen[boost::json::serialize(exploit->config)];
        }
    }
    CHECK(seen.size() == 4);
    for (const char* one : {R"({"c":8,"net":{"d":"a"}})", R"({"c":8,"net":{"d":"c"}})",
                            R"({"c":4,"net":{"d":"a"}})", R"({"c":4,"net":{"d":"c"}})"}) {
        CHECK(seen[one] > 20);
    }
}

TEST_CASE("Schedule.pbt_draws_what_a_configuration_lacks") {
    auto pbt = population(
        {.hyperparam_mutations = {{"lr", uniform(1, 2)}, {"net", Space{{"width", randint(5, 9)}}}}},
        0);
    const rtrain::Config config = pbt.add("0", {{"other", 1}});
    CHECK(config.at("other") == 1);
    CHECK(config.at("lr").as_double() >= 1);
    CHECK(config.at("lr").as_double() < 2);
    CHECK(config.at("net").as_object().at("width").as_int64() >= 5);
    CHECK(pbt.add("1", {{"lr", 7}}).at("lr") == 7);
}

TEST_CASE("Schedule.pbt_mutates_what_lies_within") {
    const auto changed = [](const Space& mutations) {
        auto pbt = population({.hyperparam_mutations = mutations, .resample_probability = 0}, 0);
        for (int trial = 0; trial < 5; ++trial) {
            const auto config = pbt.add(std::to_string(trial), {{"net", {{"depth", 4}}}});
            CHECK(config.at("net").as_object().at("depth") == 4);
            (void)pbt.on_result(report(trial, 10, 50 * trial));
        }
        return exploit_of(pbt, 0, 20, -100).config.at("net").as_object();
    };
    const Domain depth = choice({4, 8});
    const Domain rate = sample_from([](const auto&) { return 1.0; });
    const auto by_slash = changed({{"net/depth", depth}, {"net/sgd/rate", rate}});
    CHECK(by_slash == changed({{"net", Space{{"depth", depth}, {"sgd", Space{{"rate", rate}}}}}}));
    CHECK(by_slash == changed({{"net/depth", depth}, {"net", Space{{"sgd/rate", rate}}}}));
    const double drawn = by_slash.at("sgd").as_object().at("rate").as_double();
    CHECK((drawn == 1.2 || drawn == 0.8));
}

TEST_CASE("Schedule.pbt_changes_nothing_until_a_state_is_taken_over") {
    Pbt pbt = begun_population();
    (void)wanted_of(pbt, 0, 20, -100); // whose donor has none
    CHECK(says(pbt, 0, 29, -100) == 'c');
    CHECK(wanted_of(pbt, 0, 30, -100).iteration == 30);
    (void)pbt.on_result(report(3, 30, -200)); // worse now
    for (int attempt = 0; attempt < 20; ++attempt) {
        const Exploit exploit = wanted_of(pbt, 3, 40 + 10 * attempt, -200);
        CHECK(exploit.donor_config.at("id") == std::stoi(exploit.donor));
    }
}

TEST_CASE("Schedule.pbt_yields_to_trials_that_have_come_least_far") {
    Pbt pbt = population({.resample_probability = 0});
    CHECK(says(pbt, 0, 20, 1000, true) == 'p');
    CHECK(says(pbt, 1, 10, 1000, true) == 'p');
    const Candidate all[] = {{"0", true}, {"1", true}, {"2", false}, {"3", false}};
    CHECK(pbt.next(all) == "2");
    CHECK(pbt.next(std::span(all).first(2)) == "1");
    CHECK(says(pbt, 2, 10, 0, true) == 'p'); // the worst of three
    const auto orders = pbt.orders();
    REQUIRE(orders.size() == 1);
    CHECK(orders[0].trial == "2");
    CHECK(std::holds_alternative<Exploit>(orders[0].what));
    CHECK(pbt.orders().empty());
}

TEST_CASE("Schedule.pbt_waits_for_all_in_synchronous_mode") {
    Pbt pbt = population({.resample_probability = 0, .synch = true});
    for (int trial = 0; trial < 4; ++trial) {
        CHECK(says(pbt, trial, 10, 50 * trial) == 'p');
        CHECK(pbt.orders().empty());
    }
    const Candidate one[] = {{"0", true}};
    CHECK(pbt.next(one) == std::nullopt);
    SUBCASE("the last one comes") {
        CHECK(says(pbt, 4, 10, 200) == 'p');
    }
    SUBCASE("the last one fails") {
        pbt.on_end("4", TrialEnd::errored, std::nullopt);
    }
    const auto orders = pbt.orders();
    REQUIRE(!orders.empty());
    CHECK(orders[0].trial == "0");
    CHECK(pbt.next(one) == "0");
}

TEST_CASE("Schedule.pbt_in_synchronous_mode_never_has_all_wait") {
    Pbt pbt = population({.resample_probability = 0, .synch = true}, 2);
    for (const double time : {35, 70, 105}) { // further than an interval
        CHECK(says(pbt, 0, time, 1) == 'p');
        CHECK(says(pbt, 1, time, 2) == 'p');
        for (const Order& order : pbt.orders()) {
            pbt.on_taken_over(order.trial, std::get<Exploit>(order.what));
        }
        const Candidate both[] = {{"0", true}, {"1", true}};
        CHECK(pbt.next(both).has_value());
    }
}

TEST_CASE("Schedule.pbt_heeds_its_burn_in_and_missing_metrics") {
    Pbt pbt = population({.burn_in_period = 50});
    for (int trial = 0; trial < 5; ++trial) {
        CHECK(says(pbt, trial, 49, trial) == 'c');
    }
    CHECK(pbt.quantile_ids().lower.empty());
    const TrialReport other{.trial = "0", .iteration = 60, .metrics = {{"loss", 1}}};
    CHECK(pbt.on_result(other).index() == 0);
    Pbt strict = population({.require_attrs = true});
    CHECK(code_of([&] { (void)strict.on_result(other); }) == "RT-U64");
}

TEST_CASE("Schedule.pbt_replaces_every_NaN_and_never_by_one") {
    Pbt pbt = population({.resample_probability = 0});
    for (int trial = 0; trial < 5; ++trial) { // only 0 is a number: minus infinity is, too
        const double score = trial == 0 ? -std::numeric_limits<double>::infinity() : not_a_number;
        CHECK(says(pbt, trial, 10, score) == (trial == 0 ? 'c' : 'x'));
    }
    CHECK(pbt.quantile_ids().upper == std::vector<std::string>{"0"});
    CHECK(pbt.quantile_ids().lower == std::vector<std::string>{"1", "2", "3", "4"});
    CHECK(exploit_of(pbt, 3, 20, not_a_number).donor == "0");
    Pbt all = population({.resample_probability = 0});
    for (int trial = 0; trial < 5; ++trial) {
        CHECK(says(all, trial, 10, not_a_number) == 'c'); // there is no donor
    }
}

TEST_CASE("Schedule.median_has_NaN_and_failures_below_all") {
    auto rule = begun(MedianStopping(
        {.time_attr = "training_iteration", .grace_period = 0, .min_samples_required = 1}));
    CHECK(says(rule, 0, 1, not_a_number) == 'c');
    CHECK(says(rule, 1, 1, -1e300) == 'c'); // better than NaN
    CHECK(says(rule, 2, 1, 0) == 'c');
    CHECK(says(rule, 3, 1, not_a_number) == 's');
    CHECK(says(rule, 0, 2, 5) == 'c'); // a number is better than the NaN before it
    rule.on_end("1", TrialEnd::errored, std::nullopt);
    auto other = begun(MedianStopping(
        {.time_attr = "training_iteration", .grace_period = 0, .min_samples_required = 1}));
    CHECK(says(other, 0, 1, 1000) == 'c');
    other.on_end("0", TrialEnd::errored, std::nullopt);
    CHECK(says(other, 1, 1, 1) == 'c');
}

TEST_CASE("Schedule.pbt_that_is_loaded_draws_the_same") {
    Pbt one = begun_population({.hyperparam_mutations = {{"float", uniform(0, 1)}}});
    Pbt other = population({.hyperparam_mutations = {{"float", uniform(0, 1)}}}, 0);
    other.load(rtrain::json::parse(rtrain::json::serialize(one.save())).as_object());
    for (int time = 20; time < 200; time += 10) {
        const Exploit mine = exploit_of(one, 0, time, -100);
        const Exploit its = exploit_of(other, 0, time, -100);
        CHECK(mine.donor == its.donor);
        CHECK(mine.config == its.config);
    }
}

TEST_CASE("Schedule.a_policy_log_is_replayed") {
    // 2 clones 1, which has cloned 0 before; the first line was overwritten by what followed.
    const std::string log = R"(["9","8",5,4,{"lr":9},{"lr":8}]
["1","0",10,12,{"lr":1},{"lr":2}]
["2","1",20,22,{"lr":2},{"lr":3}]
)";
    auto replay = begun(PbtReplay(log));
    CHECK(replay.add("t", {}).at("lr") == 1);
    CHECK(says(replay, 0, 11, 0) == 'c');
    Verdict verdict = replay.on_result({.trial = "t", .iteration = 13});
    REQUIRE(std::holds_alternative<Exploit>(verdict));
    CHECK(std::get<Exploit>(verdict).donor == "t");
    CHECK(std::get<Exploit>(verdict).config.at("lr") == 2);
    verdict = replay.on_result({.trial = "t", .iteration = 14}); // it had no state yet
    CHECK(std::get<Exploit>(verdict).config.at("lr") == 2);
    replay.on_taken_over("t", std::get<Exploit>(verdict));
    auto other = begun(PbtReplay(log));
    other.load(replay.save());
    CHECK(other.on_result({.trial = "t", .iteration = 21}).index() == 0);
    verdict = other.on_result({.trial = "t", .iteration = 22});
    CHECK(std::get<Exploit>(verdict).config.at("lr") == 3);
    other.on_taken_over("t", std::get<Exploit>(verdict));
    CHECK(other.on_result({.trial = "t", .iteration = 99}).index() == 0);
    CHECK(code_of([&] { (void)other.add("u", {}); }) == "RT-U68");
    CHECK(code_of([] { PbtReplay("[1,2]"); }) == "RT-U67");
}

TEST_CASE("Schedule.bad_options_are_refused") {
    CHECK(code_of([] { Asha({.max_t = 0}); }) == "RT-U63");
    CHECK(code_of([] { Asha({.max_t = 5, .grace_period = 6}); }) == "RT-U63");
    CHECK(code_of([] { Asha({.reduction_factor = 1}); }) == "RT-U63");
    CHECK(code_of([] { Asha({.brackets = 0}); }) == "RT-U63");
    CHECK(code_of([] { HyperBand({.max_t = 0.5}); }) == "RT-U63");
    CHECK(code_of([] { HyperBand({.reduction_factor = not_a_number}); }) == "RT-U63");
    CHECK(code_of([] { MedianStopping({.min_samples_required = 0}); }) == "RT-U63");
    CHECK(code_of([] { Pbt({}); }) == "RT-U66");
    const Space lr{{"lr", uniform(0, 1)}};
    CHECK(code_of([&] { Pbt({.hyperparam_mutations = {{"lr", 1}}}); }) == "RT-U66");
    CHECK(code_of([&] { Pbt({.hyperparam_mutations = {{"lr", grid_search({1})}}}); }) == "RT-U66");
    CHECK(code_of([&] { Pbt({.hyperparam_mutations = lr, .quantile_fraction = 0.6}); }) ==
          "RT-U63");
    CHECK(code_of([&] { Pbt({.perturbation_interval = 0, .hyperparam_mutations = lr}); }) ==
          "RT-U63");
    CHECK(code_of([] { Asha().begin({}); }) == "RT-U62");
    CHECK(code_of([] { HyperBand().begin({}); }) == "RT-U62");
    CHECK(code_of([&] { begun(Asha()).load(begun(HyperBand()).save()); }) == "RT-U65");
    CHECK(code_of([&] { begun(Asha()).load({}); }) == "RT-U65");
    CHECK(code_of([&] {
              begun(HyperBand()).load({{"type", "HyperBand"}, {"bands", 3}});
          }) == "RT-U65");
}

TEST_CASE("Schedule.any_scheduler_is_copied_with_its_state") {
    AnyScheduler one = Asha({.reduction_factor = 2});
    one.begin(goal);
    (void)one.add("0", {});
    (void)one.add("1", {});
    (void)one.on_result(report(0, 1, 5));
    AnyScheduler other = one;
    CHECK(std::holds_alternative<Stop>(other.on_result(report(1, 1, 4))));
    CHECK(std::holds_alternative<GoOn>(one.on_result(report(1, 1, 6))));
    CHECK(one.orders().empty());
    AnyScheduler fifo = Fifo();
    const Candidate waiting[] = {{"2", true}, {"3", false}};
    CHECK(fifo.next(waiting) == "3");
    CHECK(fifo.next(std::span(waiting).first(1)) == "2");
}

TEST_CASE("Stoppers.timeout_counts_run_time_only") {
    const Stoppers stoppers{Timeout{60}};
    StopperJudge judge(stoppers);
    judge.hear_time(1000);
    judge.hear_time(1040);
    CHECK(!judge.stops());
    CHECK(judge.time_left_s() == 20);
    StopperJudge later(stoppers);
    later.load(judge.save());
    later.hear_time(1240); // 200 s later
    CHECK(!later.stops());
    later.hear_time(1259);
    CHECK(!later.stops());
    later.hear_time(1262);
    CHECK(later.stops());
    CHECK(contains(later.reason(), "Timeout"));
    StopperJudge last(stoppers);
    last.load(later.save());
    CHECK(last.stops());
    judge.hear_time(1062);
    CHECK(judge.stops());
}

TEST_CASE("Stoppers.a_plateau_of_the_best_values_or_a_function_stops") {
    const ExperimentPlateau plateau{.metric = "m", .top = 3, .patience = 2};
    StopperJudge judge(plateau);
    for (const double value :
         {1.0, 5.0, 1.0, not_a_number, 1.0}) { // the best three are equal, once
        judge.hear(report(0, 1, value));
        CHECK(!judge.stops());
    }
    judge.hear({.trial = "0", .metrics = {{"other", 1}}});
    CHECK(!judge.stops());
    StopperJudge other(plateau);
    other.load(judge.save());
    judge.hear(report(0, 1, 7));
    CHECK(judge.stops());
    other.hear(report(0, 1, 0.5)); // they differ again
    CHECK(!other.stops());
    StopperJudge up(ExperimentPlateau{.metric = "m", .top = 2, .mode = "max"});
    up.hear(report(0, 1, 3));
    up.hear(report(0, 1, 9));
    CHECK(!up.stops());
    up.hear(report(0, 1, 9));
    CHECK(up.stops());
    StopperJudge asked([](const TrialReport& it) { return it.iteration > 3; });
    asked.hear(report(0, 3, 1));
    CHECK(!asked.stops());
    asked.hear(report(0, 4, 1));
    CHECK(asked.stops());
    CHECK(code_of([] { StopperJudge(Timeout{0}); }) == "RT-U63");
    CHECK(code_of([] { StopperJudge(ExperimentPlateau{.metric = "m", .top = 1}); }) == "RT-U63");
    CHECK(code_of([&] { StopperJudge(Timeout{1}).load(judge.save()); }) == "RT-U65");
}
