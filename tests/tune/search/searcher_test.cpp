// SPDX-License-Identifier: Apache-2.0
// What searchers suggest, when they wait or end, and that a saved one goes on as it would have.
#include "support/thrown.hpp"

#include <rtrain/base/json.hpp>
#include <rtrain/tune/search/basic_variant.hpp>
#include <rtrain/tune/search/bohb.hpp>
#include <rtrain/tune/search/concurrency_limiter.hpp>
#include <rtrain/tune/search/repeater.hpp>
#include <rtrain/tune/search/tpe.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

using namespace rtrain::tune;
using rtrain::Config;
using test::code_of;
using test::message_of;

namespace {

const Goal small_loss{"loss", "min"};

/// One of each kind of domain.
Space all_domains() {
    return Space{{"u", uniform(0, 1)},
                 {"qu", quniform(0, 1, 0.25)},
                 {"l", loguniform(1e-3, 1)},
                 {"ql", qloguniform(0.5, 8, 0.5)},
                 {"n", randn(0, 1)},
                 {"qn", qrandn(0, 1, 0.5)},
                 {"i", randint(0, 10)},
                 {"qi", qrandint(0, 10, 2)},
                 {"li", lograndint(1, 100)},
                 {"qli", qlograndint(4, 64, 4)},
                 {"net", choice({Space{{"kind", "a"}, {"x", uniform(0, 1)}},
                                 Space{{"kind", "b"}, {"y", choice({1, 2, 3})}}, "none"})},
                 {"f", sample_from([](const Config& config, Random& random) {
                      return config.at("u").as_double() + random.uniform();
                  })}};
}

double loss_of(const Config& config) {
    return std::abs(config.at("u").as_double() - 0.3) +
           std::abs(std::log10(config.at("l").as_double()) + 1) +
           (config.at("net").is_object() ? 0.0 : 0.5);
}

std::string id_of(int number) {
    return "trial_" + std::to_string(number);
}

/// Up to 3 trials under way, fewer if it waits; some are stopped early, some fail.
template <class S>
void step(S& searcher, int number, std::vector<std::pair<int, Config>>& under_way,
          std::vector<std::string>& log) {
    Suggestion suggestion = searcher.ask(id_of(number));
    if (auto* config = std::get_if<Config>(&suggestion)) {
        log.push_back(rtrain::json::serialize(*config));
        under_way.emplace_back(number, std::move(*config));
    } else {
        log.push_back(std::holds_alternative<Wait>(suggestion) ? "wait" : "exhausted");
    }
    if (under_way.size() < 3 && log.back().front() == '{') {
        return;
    }
    const auto [ended, config] = under_way.front();
    under_way.erase(under_way.begin());
    const double loss = loss_of(config);
    if constexpr (internal::HasOnResult<S>) {
        searcher.on_result(id_of(ended), 1, 2 * loss);
        searcher.on_result(id_of(ended), 2, ended % 5 == 1 ? std::nan("") : loss);
    }
    if (ended % 7 == 3) {
        searcher.tell(id_of(ended), std::nullopt, TrialEnd::errored);
    } else {
        searcher.tell(id_of(ended), loss, ended % 4 == 1 ? TrialEnd::stopped : TrialEnd::completed);
    }
}

/// Whether a search that is saved as text and loaded at any of some moments goes on as the other,
/// and another search with the seed does the same.
template <class S>
void check_saved(const S& fresh) {
    constexpr int steps = 60;
    S searcher = fresh;
    searcher.begin(all_domains(), small_loss, -1);
    std::vector<std::pair<int, Config>> under_way;
    std::vector<std::string> log;
    std::vector<std::string> states;
    std::vector<std::vector<std::pair<int, Config>>> moments;
    for (int number = 0; number < steps; ++number) {
        states.push_back(rtrain::json::serialize(searcher.save()));
        moments.push_back(under_way);
        step(searcher, number, under_way, log);
    }
    CHECK(std::set<std::string>(log.begin(), log.end()).size() > 10);
    for (const int moment : {0, 1, 7, 30, 59}) {
        CAPTURE(moment);
        S other = fresh;
        other.begin(all_domains(), small_loss, -1);
        other.load(rtrain::json::parse(states[static_cast<std::size_t>(moment)]).as_object());
        std::vector<std::pair<int, Config>> others = moments[static_cast<std::size_t>(moment)];
        std::vector<std::string> its_log(log.begin(), log.begin() + moment);
        for (int number = moment; number < steps; ++number) {
            step(other, number, others, its_log);
        }
        CHECK(its_log == log);
    }
}

Config asked(auto& searcher, const std::string& trial) {
    return std::get<Config>(searcher.ask(trial));
}

/// A search of `count` trials, whose configurations it gives.
template <class S>
std::vector<std::string> searched(S searcher, int count) {
    searcher.begin(all_domains(), small_loss, -1);
    std::vector<std::pair<int, Config>> under_way;
    std::vector<std::string> log;
    for (int number = 0; number < count; ++number) {
        step(searcher, number, under_way, log);
    }
    return log;
}

} // namespace

TEST_CASE("Searcher.goes_on_after_load_as_it_would_have") {
    check_saved(BasicVariant({.seed = 4}));
    check_saved(Tpe({.seed = 4}));
    check_saved(Bohb({.seed = 4}));
    check_saved(ConcurrencyLimiter(Tpe({.seed = 4}), 2));
    check_saved(ConcurrencyLimiter(Tpe({.seed = 4}), 3, true));
    check_saved(Repeater(Tpe({.seed = 4}), 3, true));
    check_saved(AnySearcher(Bohb({.seed = 4})));
}

TEST_CASE("Searcher.a_seed_decides") {
    CHECK(searched(Tpe({.seed = 1}), 30) == searched(Tpe({.seed = 1}), 30));
    CHECK(searched(Tpe({.seed = 1}), 30) != searched(Tpe({.seed = 2}), 30));
    CHECK(searched(Bohb({.seed = 1}), 30) == searched(Bohb({.seed = 1}), 30));
    CHECK(searched(Bohb({.seed = 1}), 30) != searched(Bohb({.seed = 2}), 30));
    CHECK(searched(BasicVariant({.seed = 1}), 3) != searched(BasicVariant({.seed = 2}), 3));
}

TEST_CASE("Searcher.suggestions_are_within_the_space") {
    const internal::Parameters parameters(all_domains());
    const auto check = [&](auto searcher) {
        for (const std::string& text : searched(std::move(searcher), 150)) {
            Config config = rtrain::json::parse(text).as_object();
            CHECK(config.erase("f") == 1);
            CHECK_NOTHROW(static_cast<void>(parameters.values_in(config)));
        }
    };
    check(BasicVariant());
    check(Tpe());
    check(Bohb());
}

TEST_CASE("BasicVariant.goes_through_grids_for_each_sample") {
    BasicVariant searcher;
    searcher.begin(Space{{"a", grid_search({1, 2})},
                         {"x", uniform(0, 1)},
                         {"b", grid_search({"p", "q", "r"})}},
                   {}, 2);
    std::vector<std::string> seen;
    std::set<double> drawn;
    for (int i = 0; i < 12; ++i) {
        Config config = asked(searcher, id_of(i));
        drawn.insert(config.at("x").as_double());
        config.erase("x");
        seen.push_back(boost::json::serialize(config));
    }
    CHECK(std::holds_alternative<Exhausted>(searcher.ask("more")));
    CHECK(drawn.size() == 12);
    CHECK(seen[0] == R"({"a":1,"b":"p"})");
    CHECK(seen[1] == R"({"a":2,"b":"p"})");
    CHECK(seen[5] == R"({"a":2,"b":"r"})");
    CHECK(std::set<std::string>(seen.begin(), seen.begin() + 6).size() == 6);
    CHECK(std::vector<std::string>(seen.begin(), seen.begin() + 6) ==
          std::vector<std::string>(seen.begin() + 6, seen.end()));
}

TEST_CASE("BasicVariant.begins_with_points") {
    const Space space{{"a", grid_search({1, 2})},
                      {"net", choice({Space{{"kind", "s"}, {"x", uniform(0, 1)}}, 7})},
                      {"lr", loguniform(0.1, 1)}};
    const Config point{{"a", 2}, {"net", {{"kind", "s"}, {"x", 0.25}}}};
    BasicVariant searcher({.points_to_evaluate = {point, Config{{"net", 7}}}});
    searcher.begin(space, {}, 2);
    Config first = asked(searcher, "0");
    CHECK(first.at("net") == point.at("net"));
    CHECK(first.at("a") == 2);
    CHECK(first.at("lr").as_double() >= 0.1);   // drawn
    CHECK(asked(searcher, "1").at("net") == 7); // once for each value of the grid
    CHECK(asked(searcher, "2").at("net") == 7);
    CHECK(std::holds_alternative<Exhausted>(searcher.ask("3")));

    Tpe tpe({.points_to_evaluate = {Config{{"lr", 0.5}}}});
    tpe.begin(Space{{"lr", loguniform(0.1, 1)}}, small_loss, -1);
    CHECK(asked(tpe, "0").at("lr") == 0.5);
}

TEST_CASE("Searcher.ends_after_num_samples") {
    Tpe tpe;
    tpe.begin(all_domains(), small_loss, 2);
    static_cast<void>(asked(tpe, "0"));
    static_cast<void>(asked(tpe, "1"));
    CHECK(std::holds_alternative<Exhausted>(tpe.ask("2")));
    Repeater repeater(BasicVariant(), 3);
    repeater.begin(all_domains(), small_loss, 4);
    std::set<std::string> configs;
    for (int i = 0; i < 4; ++i) {
        configs.insert(boost::json::serialize(asked(repeater, id_of(i)).at("u")));
    }
    CHECK(configs.size() == 2);
    CHECK(std::holds_alternative<Exhausted>(repeater.ask("4")));
}

/// Notes what it hears.
struct Listener {
    void begin(const Space& /*space*/, const Goal& /*goal*/, std::int64_t /*samples*/) {}
    Suggestion ask(const std::string& trial) { return Config{{"of", trial}}; }
    void tell(const std::string& trial, std::optional<double> score, TrialEnd end) {
        heard->push_back(trial + " " + (score ? std::to_string(*score) : "-") + " " +
                         std::to_string(static_cast<int>(end)));
    }
    boost::json::object save() const { return {}; }
    void load(const boost::json::object& /*state*/) {}
    std::shared_ptr<std::vector<std::string>> heard = std::make_shared<std::vector<std::string>>();
};

TEST_CASE("Repeater.tells_means") {
    const Listener listener;
    Repeater searcher(listener, 3, true);
    searcher.begin(Space{}, small_loss, -1);
    CHECK(boost::json::serialize(asked(searcher, "a")) == R"({"of":"a","__trial_index__":0})");
    searcher.tell("a", 1, TrialEnd::completed);
    CHECK(asked(searcher, "b").at("of") == "a");
    CHECK(boost::json::serialize(asked(searcher, "c")) == R"({"of":"a","__trial_index__":2})");
    CHECK(asked(searcher, "d").at("of") == "d");
    searcher.tell("c", std::nullopt, TrialEnd::errored);
    CHECK(listener.heard->empty());
    searcher.tell("b", 4, TrialEnd::stopped);
    CHECK(*listener.heard == std::vector<std::string>{"a 2.500000 0"});
    for (const char* trial : {"e", "f"}) {
        CHECK(asked(searcher, trial).at("of") == "d");
    }
    for (const char* trial : {"d", "e", "f"}) {
        searcher.tell(trial, std::nullopt, TrialEnd::errored);
    }
    CHECK(listener.heard->back() == "d - 2");
    CHECK(code_of([&] { searcher.tell("f", 1, TrialEnd::completed); }) == "RT-U11");
}

TEST_CASE("ConcurrencyLimiter.waits") {
    const Listener listener;
    ConcurrencyLimiter searcher(listener, 2);
    searcher.begin(Space{}, small_loss, -1);
    static_cast<void>(asked(searcher, "a"));
    static_cast<void>(asked(searcher, "b"));
    CHECK(std::holds_alternative<Wait>(searcher.ask("c")));
    searcher.tell("b", 1, TrialEnd::completed);
    CHECK(listener.heard->size() == 1);
    CHECK(asked(searcher, "c").at("of") == "c");

    const Listener other;
    ConcurrencyLimiter batch(other, 2, true);
    batch.begin(Space{}, small_loss, -1);
    static_cast<void>(asked(batch, "a"));
    static_cast<void>(asked(batch, "b"));
    batch.tell("b", 1, TrialEnd::completed);
    CHECK(other.heard->empty());
    CHECK(std::holds_alternative<Wait>(batch.ask("c"))); // the batch has not ended
    batch.tell("a", 2, TrialEnd::completed);
    CHECK(*other.heard == std::vector<std::string>{"b 1.000000 0", "a 2.000000 0"});
    CHECK(asked(batch, "c").at("of") == "c");
}

TEST_CASE("Bohb.learns_from_the_largest_budget_that_has_enough") {
    // Small budgets say that x is best large, the largest that it is best small.
    Bohb bohb({.random_fraction = 0, .seed = 2});
    bohb.begin(Space{{"x", uniform(0, 1)}}, small_loss, -1);
    double sums[2] = {0, 0};
    for (int i = 0; i < 200; ++i) {
        const double x = asked(bohb, id_of(i)).at("x").as_double();
        bohb.on_result(id_of(i), 1, -x);
        if (i >= 40) { // before, all were stopped at the first budget
            bohb.on_result(id_of(i), 3, x);
        }
        bohb.tell(id_of(i), std::nullopt, i < 40 ? TrialEnd::stopped : TrialEnd::completed);
        sums[0] += i >= 20 && i < 40 ? x : 0;
        sums[1] += i >= 180 ? x : 0;
    }
    CHECK(sums[0] / 20 > 0.65);
    CHECK(sums[1] / 20 < 0.5);
}

TEST_CASE("Searcher.bad_input") {
    const Space space{{"x", uniform(0, 1)}};
    const Space grid{{"x", grid_search({1, 2})}};
    CHECK(code_of([&] { Tpe().begin(grid, small_loss, 1); }) == "RT-U6");
    CHECK(code_of([&] { Bohb().begin(grid, small_loss, 1); }) == "RT-U6");
    CHECK(code_of([&] {
              BasicVariant().begin(Space{{"c", choice({grid, 1})}}, small_loss, 1);
          }) == "RT-U6");
    CHECK(code_of([&] { Tpe().begin(space, {}, 1); }) == "RT-U7");
    CHECK(code_of([&] { Tpe().begin(space, small_loss, 0); }) == "RT-U8");
    CHECK(code_of([&] { BasicVariant().begin(space, {}, -2); }) == "RT-U8");

    const std::vector<boost::json::value> thousand(1001, 1);
    const std::string message = message_of([&] {
        BasicVariant().begin(Space{{"a", grid_search(thousand)}, {"b", grid_search(thousand)}}, {},
                             1);
    });
    CHECK(message.find("1001 x 1001 = 1002001") != std::string::npos);
    CHECK(message.find("[RT-U9]") != std::string::npos);

    const auto point = [&](Config config) {
        return code_of([&] {
            BasicVariant({.points_to_evaluate = {std::move(config)}})
                .begin(Space{{"x", quniform(0, 1, 0.5)}, {"c", 3}, {"net/w", randint(0, 3)}}, {},
                       1);
        });
    };
    CHECK(point({{"x", 2}}) == "RT-U10");
    CHECK(point({{"x", 0.3}}) == "RT-U10");
    CHECK(point({{"y", 1}}) == "RT-U10");
    CHECK(point({{"c", 4}}) == "RT-U10");
    CHECK(point({{"net", {{"depth", 1}}}}) == "RT-U10");
    CHECK(point({{"x", 0.5}, {"c", 3}, {"net", {{"w", 2}}}}) == "");

    Tpe tpe;
    tpe.begin(space, small_loss, -1);
    static_cast<void>(asked(tpe, "a"));
    CHECK(code_of([&] { static_cast<void>(tpe.ask("a")); }) == "RT-U11");
    CHECK(code_of([&] { tpe.tell("b", 1, TrialEnd::completed); }) == "RT-U11");
    CHECK_NOTHROW(tpe.tell("a", std::nan(""), TrialEnd::completed));
    CHECK(code_of([&] { tpe.tell("a", 1, TrialEnd::completed); }) == "RT-U11");

    CHECK(code_of([&] { ConcurrencyLimiter(Tpe(), 0); }) == "RT-U13");
    CHECK(code_of([&] { Repeater(Tpe(), 0); }) == "RT-U13");
    CHECK(code_of([&] { Tpe({.candidates = 0}).begin(space, small_loss, 1); }) == "RT-U13");

    Tpe other;
    other.begin(Space{{"y", uniform(0, 1)}}, small_loss, -1);
    CHECK(code_of([&] { other.load(tpe.save()); }) == "RT-U14");
    CHECK(code_of([&] { tpe.load({}); }) == "RT-U14");
    boost::json::object damaged = tpe.save();
    damaged["trials"] = boost::json::array{1};
    CHECK(code_of([&] { tpe.load(damaged); }) == "RT-U14");
}

namespace {

/// How many of the last 60 of 120 suggestions are where trials fail: below `limit`.
template <class S>
int suggested_where_trials_fail(S searcher, std::optional<double> score, TrialEnd end,
                                double limit = 0.5) {
    searcher.begin(Space{{"x", uniform(0, 1)}}, small_loss, -1);
    int count = 0;
    for (int number = 0; number < 120; ++number) {
        const std::string id = id_of(number);
        const double x = asked(searcher, id).at("x").as_double();
        const bool fails = x < limit;
        const double loss = std::abs(x - 0.9);
        searcher.on_result(id, 1, fails ? -1 : loss); // good before it fails
        if (!fails || score) {
            searcher.on_result(id, 2, fails ? *score : loss);
        }
        searcher.tell(id, fails ? score : loss, fails ? end : TrialEnd::completed);
        count += number >= 60 && fails ? 1 : 0;
    }
    return count;
}

} // namespace

TEST_CASE("Searcher.does_not_go_back_to_where_trials_fail_or_report_NaN") {
    const double nan = std::nan("");
    for (const std::uint64_t seed : {1, 2, 3}) {
        CAPTURE(seed);
        const Tpe tpe({.seed = seed});
        CHECK(suggested_where_trials_fail(tpe, std::nullopt, TrialEnd::errored) <= 10);
        CHECK(suggested_where_trials_fail(tpe, std::nullopt, TrialEnd::completed) <= 10);
        CHECK(suggested_where_trials_fail(tpe, nan, TrialEnd::completed) <= 10);
        CHECK(suggested_where_trials_fail(tpe, nan, TrialEnd::stopped) <= 10);
        CHECK(suggested_where_trials_fail(tpe, std::nullopt, TrialEnd::errored, 0.95) <= 45);
        const Bohb bohb({.random_fraction = 0.1, .seed = seed});
        CHECK(suggested_where_trials_fail(bohb, std::nullopt, TrialEnd::errored) <= 15);
        CHECK(suggested_where_trials_fail(bohb, nan, TrialEnd::completed) <= 15);
    }
}

TEST_CASE("Searcher.ranges_wider_than_a_double_are_searched") {
    const Space space{{"u", uniform(-1e308, 1e308)}, {"q", quniform(-1e308, 1e308, 1e307)}};
    const auto check = [&](auto searcher) {
        searcher.begin(space, small_loss, -1);
        int good = 0;
        for (int number = 0; number < 60; ++number) {
            const Config config = asked(searcher, id_of(number));
            const double u = config.at("u").as_double();
            const double q = config.at("q").as_double();
            CHECK((u >= -1e308 && u < 1e308)); // not NaN
            CHECK((q >= -1e308 && q <= 1e308));
            searcher.tell(id_of(number), std::abs(u / 1e308 - 0.5) + std::abs(q / 1e308),
                          TrialEnd::completed);
            good += number >= 30 && std::abs(u / 1e308 - 0.5) < 0.25 ? 1 : 0;
        }
        return good;
    };
    (void)check(BasicVariant({.seed = 1}));
    CHECK(check(Tpe({.seed = 1})) >= 15); // a quarter by chance: 7
    CHECK(check(Bohb({.random_fraction = 0.1, .seed = 1})) >= 12);
}
