// SPDX-License-Identifier: Apache-2.0
// Schedules against tables of torch.optim.lr_scheduler: see make_torch_tables.py.
#include <rtrain/schedule/any.hpp>
#include <rtrain/schedule/cosine.hpp>
#include <rtrain/schedule/cycle.hpp>
#include <rtrain/schedule/decay.hpp>

#include <doctest/doctest.h>

#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace s = rtrain::schedule;

namespace {

// Without a cosine or a root, schedules are constants.
static_assert(s::Warmup{100}(50) == 0.5);
static_assert(s::Warmup{100}.then(s::Step{.step_size = 10, .gamma = 0.5})(125) == 0.25);
static_assert((s::Constant{.factor = 0.5} * s::Polynomial{.steps = 4, .power = 2})(2) == 0.125);
static_assert(s::MultiStep{.milestones = {2, 1}, .gamma = 0.5}(2) == 0.25);
static_assert(s::Exponential{.gamma = 0.5}(10) == 1.0 / 1024);
static_assert(s::Linear{.steps = 4, .start_factor = 0, .end_factor = 0.5}(2) == 0.25);
static_assert(s::Warmup{3}.then(s::Linear{.steps = 4}).then(s::Constant{.steps = 5}).length() ==
              12);

std::string inflated(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    const std::string packed{std::istreambuf_iterator<char>(in), {}};
    REQUIRE(!packed.empty());
    std::string text(16'000'000, '\0');
    uLongf size = text.size();
    REQUIRE(uncompress(reinterpret_cast<Bytef*>(text.data()), &size,
                       reinterpret_cast<const Bytef*>(packed.data()), packed.size()) == Z_OK);
    text.resize(size);
    return text;
}

using Tables = std::map<std::string, std::vector<double>>;

Tables read_tables() {
    const std::string text = inflated(RTRAIN_SCHEDULE_DATA "/torch_tables.bin");
    std::size_t at = text.find("\n\n") + 2;
    std::istringstream head(text.substr(0, at));
    Tables tables;
    std::string name;
    std::size_t count = 0;
    while (head >> name >> count) {
        std::vector<std::int64_t> numbers(count);
        for (std::int64_t& number : numbers) {
            std::uint64_t left = 0;
            for (int shift = 0;; shift += 7) {
                const auto byte = static_cast<unsigned char>(text.at(at++));
                left |= std::uint64_t{byte & 127U} << shift;
                if (byte < 128) {
                    break;
                }
            }
            number = static_cast<std::int64_t>(left >> 1) ^ -static_cast<std::int64_t>(left & 1);
        }
        for (int round = 0; round < 3; ++round) {
            std::int64_t total = 0;
            for (std::int64_t& number : numbers) {
                number = total += number;
            }
        }
        std::vector<double>& values = tables[name];
        for (const std::int64_t number : numbers) {
            values.push_back(std::ldexp(static_cast<double>(number), -46));
        }
    }
    return tables;
}

/// The schedules of make_torch_tables.py.
std::map<std::string, s::Any> schedules() {
    constexpr std::int64_t n = 10'000;
    return {
        {"Constant", s::Constant{.factor = 0.25, .steps = 300}},
        {"Linear", s::Linear{.steps = 4000, .start_factor = 0.1, .end_factor = 0.9}},
        {"Linear.default", s::Linear{.steps = n}},
        {"Step", s::Step{.step_size = 700, .gamma = 0.5}},
        {"MultiStep", s::MultiStep{.milestones = {800, 30, 5000, 800, 9999}, .gamma = 0.3}},
        {"Exponential", s::Exponential{.gamma = 0.9995}},
        {"Polynomial", s::Polynomial{.steps = 9000, .power = 2.5}},
        {"Polynomial.linear", s::Polynomial{.steps = n}},
        {"Cosine", s::Cosine{.steps = n}},
        {"Cosine.min", s::Cosine{.steps = n, .min = 0.05}},
        {"CosineRestarts", s::CosineRestarts{.steps = 7}},
        {"CosineRestarts.longer", s::CosineRestarts{.steps = 10, .multiplier = 2, .min = 0.1}},
        {"OneCycle", s::OneCycle{.steps = n}},
        {"OneCycle.linear", s::OneCycle{.steps = n,
                                        .pct_start = 0.123,
                                        .anneal_strategy = s::Anneal::linear,
                                        .base_momentum = 0.7,
                                        .max_momentum = 0.99,
                                        .div_factor = 10,
                                        .final_div_factor = 100}},
        {"OneCycle.three_phase", s::OneCycle{.steps = n, .three_phase = true}},
        {"OneCycle.short", s::OneCycle{.steps = 7}},
        {"OneCycle.no_rise", s::OneCycle{.steps = 50, .pct_start = 0}},
        {"Cyclic", s::Cyclic{.step_size_up = 300}},
        {"Cyclic.triangular2", s::Cyclic{.base = 0.01,
                                         .step_size_up = 300,
                                         .step_size_down = 500,
                                         .mode = s::CyclicMode::triangular2}},
        {"Cyclic.exp_range", s::Cyclic{.base = 0.2,
                                       .step_size_up = 17,
                                       .step_size_down = 4,
                                       .mode = s::CyclicMode::exp_range,
                                       .gamma = 0.9997,
                                       .base_momentum = 0.5,
                                       .max_momentum = 0.95}},
        {"InverseSqrt", s::InverseSqrt{}},
        {"InverseSqrt.warmup", s::Warmup{400}.then(s::InverseSqrt{400})},
        {"WarmupStableDecay", s::WarmupStableDecay{.warmup = 500, .stable = 6000, .decay = 3500}},
        {"WarmupStableDecay.cosine", s::WarmupStableDecay{.warmup = 500,
                                                          .stable = 6000,
                                                          .decay = 3500,
                                                          .decay_type = s::Decay::cosine,
                                                          .min = 0.1}},
        {"WarmupStableDecay.sqrt", s::WarmupStableDecay{.warmup = 0,
                                                        .stable = 6000,
                                                        .decay = 4000,
                                                        .decay_type = s::Decay::one_minus_sqrt,
                                                        .min = 0.01}},
        {"Warmup.Cosine",
         s::Warmup{.steps = 100, .start_factor = 0.01}.then(s::Cosine{.steps = n - 100})},
        {"three", s::Constant{.factor = 0.1}
                      .then(s::Exponential{.gamma = 0.999}, 20)
                      .then(s::Step{.step_size = 1000, .gamma = 0.5}, 3000)},
        {"product", s::Linear{.steps = 900, .start_factor = 0.2} * s::Exponential{.gamma = 0.9998} *
                        s::MultiStep{.milestones = {100, 4000}, .gamma = 0.5}},
        {"product.then", s::Warmup{.steps = 50, .start_factor = 0.5}
                             .then(s::CosineRestarts{.steps = 1000, .min = 0.2})
                             .then(s::Polynomial{.steps = 2950, .power = 2}, 7050)},
    };
}

/// Calls `f`, which must throw a ConfigError; returns its code.
template <class F>
std::string code_of(const F& f) {
    try {
        (void)f();
    } catch (const rtrain::ConfigError& error) {
        return error.code();
    }
    return "none";
}

} // namespace

TEST_CASE("Schedule.equals_torchs_over_10000_steps") {
    const Tables tables = read_tables();
    CHECK(tables.size() == 37);
    std::set<std::string> compared;
    for (const auto& [name, f] : schedules()) {
        CAPTURE(name);
        const std::vector<double>& rates = tables.at(name);
        const auto momenta = tables.find(name + ".momentum");
        CHECK(f.sets_momentum() == (momenta != tables.end()));
        double worst = 0;
        double worst_momentum = 0;
        for (std::size_t step = 0; step < rates.size(); ++step) {
            const auto number = static_cast<std::int64_t>(step);
            worst = std::max(worst, std::abs(f(number) - rates[step]));
            const std::optional<double> momentum = f.momentum(number);
            REQUIRE(momentum.has_value() == (momenta != tables.end()));
            if (momentum) {
                worst_momentum =
                    std::max(worst_momentum, std::abs(*momentum - momenta->second[step]));
            }
        }
        CHECK(worst < 1e-12);
        CHECK(worst_momentum < 1e-12);
        compared.insert(name);
        if (momenta != tables.end()) {
            compared.insert(momenta->first);
        }
    }
    CHECK(compared.size() == tables.size());
}

TEST_CASE("Schedule.chains_start_at_step_0") {
    const auto f = s::Warmup{4}.then(s::Cosine{.steps = 6, .min = 0.5});
    CHECK(f(0) == 0);
    CHECK(f(3) == 0.75);
    CHECK(f(4) == 1);
    CHECK(f(10) == 0.5);
    CHECK(f.length() == 10);
    // A warmup of no steps.
    CHECK(s::Warmup{0}.then(s::Cosine{.steps = 6})(0) == 1);
    // Custom functions.
    const auto halves = s::Lambda{[](std::int64_t step) { return 1.0 / (1.0 + double(step)); }};
    CHECK(halves.then(s::Constant{.factor = 3}, 2)(1) == 0.5);
    CHECK(halves.then(s::Constant{.factor = 3}, 2)(2) == 3);
    CHECK((halves * [](int) { return 4; })(1) == 2);
    // A step before the chain began, and lengths that would overflow.
    CHECK(code_of([&] { return f(-1); }) == "RT-C81");
    CHECK(s::Warmup{4}.then(s::Constant{}).length() == s::forever);
    CHECK(s::CosineRestarts{.steps = 2, .multiplier = s::forever}(s::forever) < 1e-9);
    CHECK(s::Cyclic{.step_size_up = s::forever}(s::forever - 1) == doctest::Approx(1));
}

TEST_CASE("Schedule.momentum_of_chains") {
    const auto f = s::Warmup{5}.then(s::OneCycle{.steps = 10}).then(s::Constant{});
    CHECK(f.sets_momentum());
    CHECK(!f.momentum(4));
    CHECK(f.momentum(5).value() == doctest::Approx(0.95));
    CHECK(f.momentum(14).value() == doctest::Approx(0.95));
    CHECK(!f.momentum(15));
    const auto product = s::Constant{} * s::Cyclic{};
    CHECK(product.momentum(2000).value() == doctest::Approx(0.8));
    CHECK(!s::OneCycle{.steps = 10, .cycle_momentum = false}.sets_momentum());
    CHECK(!s::OneCycle{.steps = 10, .cycle_momentum = false}.momentum(3));
    static_assert(!s::MomentumSchedule<s::Constant>);
    CHECK(!s::Any(s::Constant{}).sets_momentum());
    CHECK(s::Any(f).then(s::Constant{}, 7).momentum(6).has_value());
}

TEST_CASE("Schedule.bad_values_are_errors") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double inf = std::numeric_limits<double>::infinity();
    const auto bad = [](const auto& f) { CHECK(code_of([&] { return f(0); }) == "RT-C80"); };
    bad(s::Constant{.factor = -1});
    bad(s::Constant{.factor = nan});
    bad(s::Constant{.factor = inf});
    bad(s::Constant{.steps = -2});
    bad(s::Linear{});
    bad(s::Linear{.steps = -3});
    bad(s::Linear{.steps = 3, .start_factor = nan});
    bad(s::Linear{.steps = 3, .end_factor = -0.5});
    bad(s::Warmup{-100});
    bad(s::Warmup{.steps = 5, .start_factor = 2});
    bad(s::Step{});
    bad(s::Step{.step_size = 0});
    bad(s::Step{.step_size = 3, .gamma = nan});
    bad(s::MultiStep{.milestones = {3, -4}});
    bad(s::MultiStep{.gamma = -1});
    bad(s::Exponential{.gamma = nan});
    bad(s::Polynomial{.steps = 0});
    bad(s::Polynomial{.steps = 3, .power = -1});
    bad(s::InverseSqrt{0});
    bad(s::Cosine{.steps = 0});
    bad(s::Cosine{.steps = 10, .min = 1.5});
    bad(s::Cosine{.steps = 10, .min = nan});
    bad(s::CosineRestarts{.steps = 0});
    bad(s::CosineRestarts{.steps = 10, .multiplier = 0});
    bad(s::CosineRestarts{.steps = 10, .min = -1});
    bad(s::WarmupStableDecay{});
    bad(s::WarmupStableDecay{.warmup = -5, .stable = 1, .decay = 1});
    bad(s::WarmupStableDecay{.warmup = 5, .stable = 1, .decay = 0});
    bad(s::WarmupStableDecay{.warmup = 5, .stable = 1, .decay = 1, .min = 2});
    bad(s::OneCycle{});
    bad(s::OneCycle{.steps = 10, .pct_start = 1.5});
    bad(s::OneCycle{.steps = 10, .pct_start = 0.6, .three_phase = true});
    bad(s::OneCycle{.steps = 10, .base_momentum = 0.9, .max_momentum = 0.8});
    bad(s::OneCycle{.steps = 10, .max_momentum = 1.5});
    bad(s::OneCycle{.steps = 10, .div_factor = 0});
    bad(s::OneCycle{.steps = 10, .final_div_factor = nan});
    bad(s::Cyclic{.base = 2, .max = 1});
    bad(s::Cyclic{.max = inf});
    bad(s::Cyclic{.step_size_up = 0});
    bad(s::Cyclic{.step_size_down = -1});
    bad(s::Cyclic{.gamma = nan});
    bad(s::Cyclic{.base_momentum = 0.95});

    CHECK(code_of([] { return s::Warmup{-100}.then(s::Constant{}); }) == "RT-C80");
    CHECK(code_of([] { return s::Step{.step_size = 5}.then(s::Constant{}, -1); }) == "RT-C80");
    CHECK(code_of([] { return s::Constant{}.then(s::Cosine{.steps = 5}); }) == "RT-C80");
    try {
        (void)s::Cosine{.steps = 10, .min = 1.5}(0);
        FAIL("no error");
    } catch (const rtrain::ConfigError& error) {
        CHECK(error.message() == "schedule::Cosine: min is 1.5; it must be at most 1");
    }
}

TEST_CASE("Schedule.steps_outside_are_errors") {
    const auto outside = [](const auto& f, std::int64_t step) {
        CHECK(code_of([&] { return f(step); }) == "RT-C81");
    };
    for (const auto& [name, f] : schedules()) {
        CAPTURE(name);
        outside(f, -1);
    }
    outside(s::Cosine{.steps = 10}, 11);
    outside(s::OneCycle{.steps = 10}, 11);
    outside(s::WarmupStableDecay{.warmup = 1, .stable = 2, .decay = 3}, 7);
    outside(s::Warmup{5}.then(s::Cosine{.steps = 10}), 16);
    // After the last step a scheduler computes one more rate.
    CHECK(s::Cosine{.steps = 10}(10) == 0);
    CHECK(s::OneCycle{.steps = 10}(10) == s::OneCycle{.steps = 10}(9));
    CHECK(s::WarmupStableDecay{.warmup = 1, .stable = 2, .decay = 3}(6) == 0);
    CHECK(s::OneCycle{.steps = 1}(0) > 0);
    CHECK(s::OneCycle{.steps = 5, .pct_start = 1}(4) == doctest::Approx(1));
}

TEST_CASE("Schedule.time_of_a_call" * doctest::skip()) { // -ns runs it, -s prints the times
    for (const auto& [name, f] : schedules()) {
        const std::int64_t last = name.starts_with("OneCycle.") ? 6 : 9999;
        double slowest = 0;
        double sum = 0;
        for (std::int64_t first = 0; first <= last; first += 1000) {
            double best = 1e9; // the shortest of several, because other programs run, too
            for (int round = 0; round < 30; ++round) {
                const auto begin = std::chrono::steady_clock::now();
                for (std::int64_t step = first; step < first + 1000; ++step) {
                    sum += f(last == 6 ? step % 7 : step);
                }
                const std::chrono::duration<double, std::nano> time =
                    std::chrono::steady_clock::now() - begin;
                best = std::min(best, time.count() / 1000);
            }
            slowest = std::max(slowest, best);
        }
        MESSAGE(name << ": " << slowest << " ns, sum " << sum);
        CHECK(slowest < 50);
    }
}
