// SPDX-License-Identifier: Apache-2.0
// Configurations as structs: conversion from and to JSON, and which functions take them.
#include "support/thrown.hpp"

#include <rtrain/config/typed_function.hpp>

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>
#include <boost/json/value_from.hpp>
#include <boost/json/value_to.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace of_test { // names of types are in messages

enum class Kind { sgd, adam };
BOOST_DESCRIBE_ENUM(Kind, sgd, adam)

struct Optimizer {
    double lr = 0.25;
    Kind kind = Kind::adam;
};
BOOST_DESCRIBE_STRUCT(Optimizer, (), (lr, kind))

struct Common {
    bool verbose = true;
    std::uint64_t seed = 3;
};
BOOST_DESCRIBE_STRUCT(Common, (), (verbose, seed))

struct Hyper : Common {
    int hidden = 512;
    std::int8_t depth = 2;
    float momentum = 0.5F;
    std::string name = "net";
    std::optional<int> limit;
    std::vector<bool> frozen{true};
    std::array<int, 2> kernel{3, 3};
    std::vector<Optimizer> phases;
    std::map<std::string, Optimizer> groups;
    Optimizer optimizer;
    rtrain::Config more;
    int hidden_from_json = 7;
};
BOOST_DESCRIBE_STRUCT(Hyper, (Common),
                      (hidden, depth, momentum, name, limit, frozen, kernel, phases, groups,
                       optimizer, more))

} // namespace of_test

using namespace of_test;
using namespace rtrain;
using test::message_of;

namespace {

std::string wrong_with(const Config& config) {
    return message_of([&] { (void)from_config<Hyper>(config); });
}

struct First {};
template <class F>
constexpr bool takes_struct(const F& /*function*/) {
    return detail::TypedFunction<F, First>;
}
void plain_function(First& /*first*/, const Optimizer& /*optimizer*/) {}
struct Functor {
    double operator()(First& /*first*/, Optimizer optimizer) noexcept { return optimizer.lr; }
};

} // namespace

TEST_CASE("TypedConfig.missing_keys_keep_the_defaults_of_the_struct") {
    const auto hyper = from_config<Hyper>({{"seed", std::numeric_limits<std::uint64_t>::max()},
                                           {"hidden", 64.0},
                                           {"depth", -128},
                                           {"momentum", 1},
                                           {"limit", 9},
                                           {"frozen", {false, true}},
                                           {"kernel", {5, 1}},
                                           {"phases", {{{"kind", "sgd"}}, boost::json::object()}},
                                           {"groups", {{"head", {{"lr", "inf"}}}}},
                                           {"optimizer", {{"lr", 1}}},
                                           {"more", {{"a", {1, "b"}}}}});
    CHECK(hyper.verbose);
    CHECK(hyper.seed == std::numeric_limits<std::uint64_t>::max());
    CHECK(hyper.hidden == 64);
    CHECK(hyper.depth == -128);
    CHECK(hyper.momentum == 1);
    CHECK(hyper.name == "net");
    CHECK(hyper.limit == 9);
    CHECK(hyper.frozen == std::vector<bool>{false, true});
    CHECK(hyper.kernel == std::array<int, 2>{5, 1});
    REQUIRE(hyper.phases.size() == 2);
    CHECK(hyper.phases[0].kind == Kind::sgd);
    CHECK(hyper.phases[1].kind == Kind::adam);
    CHECK(std::isinf(hyper.groups.at("head").lr));
    CHECK(hyper.optimizer.lr == 1);
    CHECK(hyper.optimizer.kind == Kind::adam);
    CHECK(hyper.more == Config{{"a", {1, "b"}}});
    CHECK(hyper.hidden_from_json == 7);
    CHECK(!from_config<Hyper>({{"limit", nullptr}}).limit);
}

TEST_CASE("TypedConfig.json_has_all_described_members_and_reads_back") {
    const Config all = to_config(Hyper{});
    CHECK(all == Config{{"verbose", true},
                        {"seed", 3},
                        {"hidden", 512},
                        {"depth", 2},
                        {"momentum", 0.5},
                        {"name", "net"},
                        {"limit", nullptr},
                        {"frozen", boost::json::array{true}},
                        {"kernel", {3, 3}},
                        {"phases", boost::json::array()},
                        {"groups", boost::json::object()},
                        {"optimizer", {{"lr", 0.25}, {"kind", "adam"}}},
                        {"more", boost::json::object()}});
    Hyper hyper;
    hyper.limit = 3;
    hyper.momentum = 0.1F;
    hyper.phases = {{.lr = 0.1}, {.kind = Kind::sgd}};
    hyper.groups = {{"head", {.lr = 1e-300}}};
    const Config changed = to_config(hyper);
    CHECK(to_config(from_config<Hyper>(changed)) == changed);
    CHECK(from_config<Hyper>(changed).momentum == 0.1F);
    hyper.optimizer.kind = static_cast<Kind>(5);
    CHECK(wrong_with(to_config(hyper)) ==
          "the config has 5 for \"optimizer/kind\"; expected one of sgd, adam [RT-C168]");
}

TEST_CASE("TypedConfig.an_unknown_key_is_an_error_that_suggests_a_member") {
    CHECK(
        wrong_with({{"hiden", 1}}) ==
        "the config has \"hiden\", but of_test::Hyper has no such member; did you mean "
        "\"hidden\"? its members are verbose, seed, hidden, depth, momentum, name, limit, frozen, "
        "kernel, phases, groups, optimizer, more [RT-C167]");
    CHECK(wrong_with({{"optimizer", {{"weight_decay", 1}}}}) ==
          "the config has \"optimizer/weight_decay\", but of_test::Optimizer has no such member; "
          "its members are lr, kind [RT-C167]");
    CHECK(test::contains(wrong_with({{"groups", {{"head", {{"LR", 1}}}}}}), "\"groups/head/LR\""));
    CHECK(test::contains(wrong_with({{"hidden_from_json", 1}}), "RT-C167"));
}

TEST_CASE("TypedConfig.a_value_of_the_wrong_type_or_range_is_an_error_that_names_its_key") {
    const std::string of_int = "; expected an integer from -2147483648 to 2147483647 [RT-C168]";
    CHECK(wrong_with({{"hidden", 1.5}}) == "the config has 1.5 for \"hidden\"" + of_int);
    CHECK(wrong_with({{"hidden", std::int64_t{1} << 40}}) ==
          "the config has 1099511627776 for \"hidden\"" + of_int);
    CHECK(wrong_with({{"hidden", "64"}}) == "the config has \"64\" for \"hidden\"" + of_int);
    CHECK(wrong_with({{"hidden", std::numeric_limits<double>::quiet_NaN()}}) ==
          "the config has nan for \"hidden\"" + of_int);
    const std::vector<std::pair<Config, std::string>> wrong{
        {{{"seed", -1}}, "-1 for \"seed\"; expected an integer from 0 to 18446744073709551615"},
        {{{"depth", 128}}, "128 for \"depth\"; expected an integer from -128 to 127"},
        {{{"limit", true}}, "true for \"limit\"; expected an integer"},
        {{{"verbose", 1}}, "1 for \"verbose\"; expected true or false"},
        {{{"name", 3}}, "3 for \"name\"; expected a string"},
        {{{"momentum", 1e300}}, "1e+300 for \"momentum\"; expected a number from -3.40282e+38 to "},
        {{{"frozen", {true, 1}}}, "1 for \"frozen/1\"; expected true or false"},
        {{{"kernel", {1, 2, 3}}}, "[1,2,3] for \"kernel\"; expected an array of 2"},
        {{{"phases", 1}}, "1 for \"phases\"; expected an array"},
        {{{"phases", {{{"lr", true}}}}}, "true for \"phases/0/lr\"; expected a number"},
        {{{"optimizer", 3}}, "3 for \"optimizer\"; expected an object"},
        {{{"optimizer", {{"lr", "fast"}}}}, "\"fast\" for \"optimizer/lr\"; expected a number"},
        {{{"optimizer", {{"lr", nullptr}}}}, "null for \"optimizer/lr\"; expected a number"},
        {{{"optimizer", {{"kind", "adm"}}}},
         "\"adm\" for \"optimizer/kind\"; did you mean \"adam\"? expected one of sgd, adam"},
        {{{"more", 1}}, "1 for \"more\"; expected an object"}};
    for (const auto& [config, message] : wrong) {
        const std::string thrown = wrong_with(config);
        CAPTURE(thrown);
        CHECK(thrown.starts_with("the config has " + message));
        CHECK(thrown.ends_with(" [RT-C168]"));
    }
}

TEST_CASE("TypedConfig.an_option_takes_json_or_a_struct") {
    struct Options {
        TrainConfig config{};
    };
    const Config json{{"lr", 1e-3}};
    CHECK(Options{}.config.empty());
    CHECK(Options{.config = {}}.config.empty());
    CHECK(Options{.config = {{"lr", 1e-3}}}.config == json);
    CHECK(Options{.config = json}.config == json);
    Options options{.config = Optimizer{.lr = 1e-3}};
    CHECK(options.config == Config{{"lr", 1e-3}, {"kind", "adam"}});
    options.config = {{"lr", 1e-3}};
    CHECK(options.config == json);
    options.config = Optimizer{};
    options.config = json;
    options.config["lr"] = 0.5;
    const Config& same = options.config;
    CHECK(same.at("lr") == 0.5);
    CHECK(boost::json::value_from(options.config) == boost::json::value(same));
    CHECK(boost::json::value_to<TrainConfig>(boost::json::value(json)) == json);
}

TEST_CASE("TypedConfig.functions_of_every_kind_take_a_struct") {
    CHECK(takes_struct(plain_function));
    CHECK(takes_struct(Functor{}));
    CHECK(takes_struct(std::function<void(First&, const Optimizer&)>()));
    CHECK(takes_struct([](auto& /*first*/, const Optimizer& /*optimizer*/) {}));
    CHECK(takes_struct([](auto&& /*first*/, const Optimizer& /*optimizer*/) {}));
    CHECK(takes_struct([](First& /*first*/, Optimizer&& /*optimizer*/) mutable {}));
    CHECK(takes_struct([](auto& /*first*/, const Optimizer& /*optimizer*/ = {}) {}));

    CHECK(!takes_struct([](auto& /*first*/) {}));
    CHECK(!takes_struct([](auto& /*first*/, const Config& /*config*/) {}));
    CHECK(!takes_struct([](auto& /*first*/, const auto& /*config*/) {}));
    CHECK(!takes_struct([](auto& /*first*/, const boost::json::value& /*config*/) {}));
    CHECK(!takes_struct([](auto& /*first*/, const std::string& /*text*/ = "") {}));

    First first;
    Functor functor;
    CHECK(detail::call_with_config(functor, first, {{"lr", 0.5}}) == 0.5);
    auto other = [](auto& /*first*/, const Config& config) { return config.size(); };
    CHECK(detail::call_with_config(other, first, {{"lr", 0.5}}) == 1);
    CHECK(detail::config_for<Functor, First>({{"lr", 1}}) == to_config(Optimizer{.lr = 1}));
    CHECK(detail::config_for<decltype(other), First>({{"x", 1}}) == Config{{"x", 1}});
}
