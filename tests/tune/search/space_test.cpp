// SPDX-License-Identifier: Apache-2.0
// Domains to their bounds (Ray's test_sample.py), names, conditions.
#include "support/thrown.hpp"

#include <rtrain/tune/search/space.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

using namespace rtrain::tune;
using test::code_of;

namespace {

std::vector<double> drawn(const Domain& domain, int count = 1000) {
    const Space space{{"x", domain}};
    Random random(7);
    std::vector<double> values;
    for (int i = 0; i < count; ++i) {
        values.push_back(space.sample(random).at("x").to_number<double>());
    }
    return values;
}

bool is_integer(const Domain& domain) {
    Random random(7);
    return Space{{"x", domain}}.sample(random).at("x").is_int64();
}

} // namespace

TEST_CASE("Space.real_numbers_keep_to_their_bounds") {
    struct Case {
        Domain domain;
        double low, high, q;
        bool logarithmic;
    };
    const Case cases[] = {
        {uniform(-3, 5), -3, 5, 0, false},
        {loguniform(1e-4, 1e-1), 1e-4, 1e-1, 0, true},
        {quniform(-3, 5, 0.5), -3, 5, 0.5, false},
        {qloguniform(0.25, 16, 0.25), 0.25, 16, 0.25, true},
        {quniform(2, 2, 1), 2, 2, 1, false},
        {quniform(0.1, 0.5, 0.1), 0.1, 0.5, 0.1, false},
    };
    for (const Case& each : cases) {
        CAPTURE(each.low);
        CAPTURE(each.q);
        int small = 0; // below the middle, of logarithms if they count
        const double middle =
            each.logarithmic ? std::sqrt(each.low * each.high) : (each.low + each.high) / 2;
        std::set<double> seen;
        for (const double x : drawn(each.domain)) {
            CHECK(x >= each.low);
            if (each.q == 0) {
                CHECK(x < each.high);
            } else {
                CHECK(x <= each.high);
                CHECK(std::abs(x / each.q - std::round(x / each.q)) < 1e-9);
            }
            seen.insert(x);
            small += x < middle ? 1 : 0;
        }
        if (each.q == 0) {
            CHECK(seen.size() > 990);
        } else {
            CHECK(*seen.begin() == each.low); // both bounds are values
            CHECK(*seen.rbegin() == each.high);
        }
        if (each.low < each.high) {
            CHECK(small > 300);
            CHECK(small < 700);
        }
        CHECK_FALSE(is_integer(each.domain));
    }
}

TEST_CASE("Space.every_integer_is_reached") {
    struct Case {
        Domain domain;
        std::set<double> values;
    };
    const Case cases[] = {
        {randint(-2, 3), {-2, -1, 0, 1, 2}},
        {lograndint(1, 6), {1, 2, 3, 4, 5}},
        {qrandint(-2, 2), {-2, -1, 0, 1, 2}},
        {qrandint(0, 12, 3), {0, 3, 6, 9, 12}},
        {qlograndint(2, 10, 2), {2, 4, 6, 8, 10}},
        {qlograndint(1, 4), {1, 2, 3, 4}},
        {randint(4, 5), {4}},
    };
    for (const Case& each : cases) {
        const std::vector<double> values = drawn(each.domain);
        CHECK(std::set<double>(values.begin(), values.end()) == each.values);
        CHECK(is_integer(each.domain));
    }
    const std::vector<double> even = drawn(qrandint(0, 3), 4000);
    CHECK(std::count(even.begin(), even.end(), 0) > 900); // the outer values are as likely
    const std::vector<double> ones = drawn(lograndint(1, 100), 4000);
    const double part = static_cast<double>(std::count(ones.begin(), ones.end(), 1)) / 4000;
    CHECK(part == doctest::Approx(std::log(2) / std::log(100)).epsilon(0.15)); // as Ray's floor
}

TEST_CASE("Space.normal_numbers") {
    double sum = 0;
    double squares = 0;
    for (const double x : drawn(randn(3, 2), 4000)) {
        sum += x;
        squares += x * x;
    }
    CHECK(sum / 4000 == doctest::Approx(3).epsilon(0.05));
    CHECK(std::sqrt(squares / 4000 - sum / 4000 * sum / 4000) == doctest::Approx(2).epsilon(0.05));
    std::set<double> seen;
    for (const double x : drawn(qrandn(0, 1, 0.5))) {
        CHECK(x / 0.5 == std::round(x / 0.5));
        seen.insert(x);
    }
    CHECK(seen.size() > 5);
}

TEST_CASE("Space.choices_functions_and_constants") {
    const Space space{{"act", choice({"relu", 3, true})},
                      {"size", choice(std::vector<int>{16, 32})},
                      {"fixed", boost::json::array{1, 2}},
                      {"double", sample_from([](const rtrain::Config& config) {
                           return 2 * config.at("size").as_int64();
                       })},
                      {"drawn", sample_from([](const rtrain::Config&, Random& random) {
                           return random.uniform();
                       })}};
    Random random(1);
    std::set<std::string> seen;
    for (int i = 0; i < 100; ++i) {
        const rtrain::Config config = space.sample(random);
        seen.insert(boost::json::serialize(config.at("act")));
        CHECK(config.at("double").as_int64() == 2 * config.at("size").as_int64());
        CHECK(config.at("drawn").as_double() < 1);
        CHECK(config.at("fixed") == boost::json::array{1, 2});
    }
    CHECK(seen == std::set<std::string>{"\"relu\"", "3", "true"});
}

TEST_CASE("Space.names_are_nested") {
    const Space space{{"scaling/num_workers", randint(2, 3)},
                      {"scaling/devices", 4},
                      {"net", Space{{"width", 8}, {"head/depth", 2}, {"none", Space{}}}}};
    Random random(1);
    CHECK(
        boost::json::serialize(space.sample(random)) ==
        R"({"scaling":{"num_workers":2,"devices":4},"net":{"width":8,"head":{"depth":2},"none":{}}})");
}

TEST_CASE("Space.a_choice_between_spaces_is_a_condition") {
    const Space space{
        {"optimizer",
         choice({Space{{"kind", "sgd"}, {"momentum", uniform(0, 1)}},
                 Space{{"kind", "adam"}, {"beta", choice({Space{{"first", 0.9}}, Space{}, 7})}}})}};
    Random random(1);
    std::set<std::string> seen;
    for (int i = 0; i < 200; ++i) {
        rtrain::Config config = space.sample(random);
        rtrain::Config& optimizer = config.at("optimizer").as_object();
        const bool sgd = optimizer.at("kind") == "sgd";
        CHECK(sgd == optimizer.contains("momentum"));
        CHECK(sgd != optimizer.contains("beta"));
        if (sgd) {
            optimizer["momentum"] = 0;
        }
        seen.insert(boost::json::serialize(config));
    }
    CHECK(seen.size() == 4);
    CHECK(seen.contains(R"({"optimizer":{"kind":"adam","beta":{}}})"));
}

TEST_CASE("Space.a_seed_gives_the_same_everywhere") {
    Random random(42); // the first numbers of xoshiro256**, seeded with splitmix64
    CHECK(random.next() == 1546998764402558742U);
    CHECK(random.next() == 6990951692964543102U);
    Random other(1);
    other.load(random.save());
    CHECK(other.next() == random.next());
    CHECK(other.normal() == random.normal());
}

TEST_CASE("Space.the_widest_ranges_do_not_overflow") {
    constexpr double most = std::numeric_limits<double>::max();
    const Space space{{"u", uniform(-most, most)},
                      {"l", loguniform(1e-300, most)},
                      {"q", quniform(-1e308, 1e308, 1e307)},
                      {"n", randn(0, most)},
                      {"qn", qrandn(0, 1e308, 1e307)}};
    Random random(1);
    int below = 0;
    for (int i = 0; i < 200; ++i) {
        const auto config = space.sample(random);
        for (const auto& item : config) {
            CAPTURE(std::string(item.key()));
            CHECK(std::isfinite(item.value().as_double()));
        }
        below += config.at("u").as_double() < 0 ? 1 : 0;
    }
    CHECK(below > 70);
    CHECK(below < 130);
    CHECK(code_of([] { static_cast<void>(quniform(0, 1e300, 1)); }) == "RT-U3");
}

TEST_CASE("Space.bad_domains_and_names") {
    const double nan = std::nan("");
    CHECK(code_of([] { static_cast<void>(uniform(1, 1)); }) == "RT-U1");
    CHECK(code_of([] { static_cast<void>(uniform(2, 1)); }) == "RT-U1");
    CHECK(code_of([&] { static_cast<void>(uniform(nan, 1)); }) == "RT-U1");
    CHECK(code_of([] { static_cast<void>(uniform(0, INFINITY)); }) == "RT-U1");
    CHECK(code_of([] { static_cast<void>(randint(3, 3)); }) == "RT-U1");
    CHECK(code_of([] { static_cast<void>(qrandint(4, 2, 2)); }) == "RT-U1");
    CHECK(code_of([] { static_cast<void>(randint(0, std::int64_t{1} << 60U)); }) == "RT-U1");
    CHECK(code_of([] { static_cast<void>(randn(0, 0)); }) == "RT-U1");
    CHECK(code_of([] { static_cast<void>(loguniform(0, 1)); }) == "RT-U2");
    CHECK(code_of([] { static_cast<void>(loguniform(-1, 1)); }) == "RT-U2");
    CHECK(code_of([] { static_cast<void>(qlograndint(0, 8, 2)); }) == "RT-U2");
    CHECK(code_of([] { static_cast<void>(quniform(0, 1, 0.3)); }) == "RT-U3");
    CHECK(code_of([] { static_cast<void>(quniform(0.1, 1, 0.2)); }) == "RT-U3");
    CHECK(code_of([] { static_cast<void>(quniform(0, 1, 0)); }) == "RT-U3");
    CHECK(code_of([] { static_cast<void>(qrandint(0, 10, 3)); }) == "RT-U3");
    CHECK(code_of([] { static_cast<void>(qrandn(0, 1, -1)); }) == "RT-U3");
    CHECK(code_of([] { static_cast<void>(choice(std::vector<Option>{})); }) == "RT-U4");
    CHECK(code_of([] { static_cast<void>(grid_search(std::vector<boost::json::value>{})); }) ==
          "RT-U4");
    for (const char* name : {"", "/a", "a/", "a//b"}) {
        CAPTURE(name);
        CHECK(code_of([&] { Space{{name, 1}}; }) == "RT-U5");
    }
    CHECK(code_of([] { Space{{"a", 1}, {"a", 2}}; }) == "RT-U5");
    CHECK(code_of([] { Space{{"a/b", 1}, {"a", Space{{"b", 2}}}}; }) == "RT-U5");
    CHECK(code_of([] { Space{{"a", 1}, {"a/b", 2}}; }) == "RT-U5");
    CHECK(code_of([] { Space{{"a/c", 1}, {"a/b", 2}}; }) == "");
}

TEST_CASE("Domain.grid_search_takes_what_json_can_hold") {
    const std::string name = "adam";
    const auto values_of = [](const Domain& domain) { return std::get<Grid>(domain).values; };
    using boost::json::value;
    CHECK(values_of(grid_search({name, std::string("sgd")})) == std::vector<value>{"adam", "sgd"});
    CHECK(values_of(grid_search({name, 1, true, nullptr})) ==
          std::vector<value>{"adam", 1, true, nullptr});
    CHECK(values_of(grid_search({{1, 2}, {3, 4}})) ==
          std::vector<value>{boost::json::array{1, 2}, boost::json::array{3, 4}});
    CHECK(values_of(grid_search(std::vector<std::string>{name})) == std::vector<value>{"adam"});
    CHECK(values_of(grid_search(std::vector<int>{1, 2})) == std::vector<value>{1, 2});
}
