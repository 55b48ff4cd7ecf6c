// SPDX-License-Identifier: Apache-2.0
// Schedules that are applied to optimizers. What they compute: tests/schedule.
#include "support/thrown.hpp"

#include <rtrain/model/optimizer/fused_optimizer.hpp>
#include <rtrain/model/optimizer/sharded_optimizer.hpp>
#include <rtrain/schedule.hpp>
#include <rtrain/state/state.hpp>

#include <torch/optim.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace lr_schedule_test {

using namespace rtrain;
using test::code_of;
using test::contains;
using test::message_of;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::RMSprop;
using torch::optim::RMSpropOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;
namespace s = rtrain::schedule;

namespace {

/// Two parameter groups, of which the second has ten times the rate.
template <class O, class Options>
O make(const Options& options) {
    const auto leaf = [](std::int64_t size) {
        return torch::linspace(-1, 1, size).set_requires_grad(true);
    };
    std::vector<OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<at::Tensor>{leaf(5), leaf(3)},
                        std::make_unique<Options>(options));
    auto other = std::make_unique<Options>(options);
    other->lr(options.lr() * 10);
    groups.emplace_back(std::vector<at::Tensor>{leaf(4)}, std::move(other));
    return O(std::move(groups), options);
}

double rate(torch::optim::Optimizer& optimizer, std::size_t group) {
    return optimizer.param_groups()[group].options().get_lr();
}

/// Steps with gradients that depend on the step.
template <class O>
void train(O& optimizer, int step) {
    for (auto& group : optimizer.param_groups()) {
        for (auto& parameter : group.params()) {
            parameter.mutable_grad() = torch::sin(parameter.detach() * 3 + step);
        }
    }
    optimizer.step();
}

std::vector<float> values(torch::optim::Optimizer& optimizer) {
    std::vector<float> all;
    for (auto& group : optimizer.param_groups()) {
        for (auto& parameter : group.params()) {
            const auto flat = parameter.detach().contiguous();
            all.insert(all.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
        }
    }
    return all;
}

checkpoint::Snapshot saved(const State& state) {
    checkpoint::Snapshot snapshot;
    state.save(snapshot);
    for (auto& [name, tensor] : snapshot.tensors) {
        tensor = tensor.detach().clone();
    }
    return snapshot;
}

/// The parameters after 20 steps; with `resume_at`, those after that step are taken by objects that
/// load what the first ones saved. Then the program has other initial rates and momenta.
template <class Prepared, class O, class Options>
std::vector<float> trained(Options options, const s::Any& schedule, int resume_at = -1) {
    const auto run = [&](Prepared& optimizer, LrSchedule& rates, int begin, int end) {
        for (int step = begin; step < end; ++step) {
            train(optimizer, step);
            rates.step();
        }
    };
    Prepared optimizer(make<O>(options));
    LrSchedule rates(optimizer, schedule);
    if (resume_at < 0) {
        run(optimizer, rates, 0, 20);
        return values(optimizer);
    }
    run(optimizer, rates, 0, resume_at);
    const auto snapshot = saved(State{}.add("rates", rates).add("optimizer", optimizer));
    const auto kept = values(optimizer);
    Prepared resumed(make<O>(options.lr(options.lr() * 7)));
    LrSchedule resumed_rates(resumed, schedule);
    State{}.add("rates", resumed_rates).add("optimizer", resumed).load(snapshot);
    std::size_t at = 0;
    const torch::NoGradGuard no_grad;
    for (auto& group : resumed.param_groups()) {
        for (auto& parameter : group.params()) {
            for (std::int64_t i = 0; i < parameter.numel(); ++i) {
                parameter[i] = kept[at++];
            }
        }
    }
    CHECK(resumed_rates.get_last_lr() == rates.get_last_lr());
    run(resumed, resumed_rates, resume_at, 20);
    return values(resumed);
}

template <class Prepared, class O, class Options>
void check_resumes(const Options& options, const s::Any& schedule) {
    const auto expected = trained<Prepared, O>(options, schedule);
    for (const int at : {0, 3, 4, 11, 20}) {
        CHECK(trained<Prepared, O>(options, schedule, at) == expected);
    }
}

} // namespace

TEST_CASE("LrSchedule.sets_the_rates_of_groups") {
    auto optimizer = make<SGD>(SGDOptions(0.5));
    const auto f = s::Warmup{.steps = 4, .start_factor = 0.5}.then(s::Cosine{.steps = 6});
    LrSchedule schedule(optimizer, f);
    for (int step = 0; step <= 10; ++step) {
        CHECK(rate(optimizer, 0) == 0.5 * f(step));
        CHECK(rate(optimizer, 1) == 5 * f(step));
        CHECK(schedule.get_last_lr() == std::vector<double>{0.5 * f(step), 5 * f(step)});
        if (step < 10) {
            schedule.step();
        }
    }
    // Past the end: no rate changes.
    CHECK(code_of([&] { schedule.step(); }) == "RT-C81");
    CHECK(code_of([&] { schedule.step(); }) == "RT-C81");
    CHECK(rate(optimizer, 1) == 5 * f(10));

    auto other = make<SGD>(SGDOptions(0.5));
    LrSchedule each(other, s::Step{.step_size = 1, .gamma = 0.5},
                    [](std::int64_t step) { return static_cast<double>(step); });
    each.step();
    each.step();
    CHECK(each.get_last_lr() == std::vector<double>{0.125, 10});
    LrSchedule many(other, std::vector<s::Any>{s::Constant{}, s::Constant{.factor = 2}});
    CHECK(many.get_last_lr() == std::vector<double>{0.125, 20});
}

TEST_CASE("LrSchedule.on_prepared_optimizers") {
    const auto f = s::Warmup{3}.then(s::OneCycle{.steps = 15}).then(s::Constant{.factor = 0.1});
    const auto sgd = SGDOptions(0.01).momentum(0.5);
    const auto fused = trained<FusedOptimizer<SGD>, SGD>(sgd, f);
    const auto plain = trained<SGD, SGD>(sgd, f);
    for (std::size_t i = 0; i < plain.size(); ++i) {
        CHECK(fused[i] == doctest::Approx(plain[i]).epsilon(1e-5));
    }
    check_resumes<FusedOptimizer<SGD>, SGD>(sgd, f);
    check_resumes<FusedOptimizer<AdamW>, AdamW>(AdamWOptions(1e-2), f);
    check_resumes<ShardedOptimizer<RMSprop>, RMSprop>(RMSpropOptions(1e-3).momentum(0.3), f);
    check_resumes<SGD, SGD>(SGDOptions(0.1), s::CosineRestarts{.steps = 5});
}

TEST_CASE("LrSchedule.sets_the_momentum") {
    auto optimizer = make<SGD>(SGDOptions(0.1).momentum(0.3));
    const auto momentum = [&](std::size_t group) {
        return static_cast<SGDOptions&>(optimizer.param_groups()[group].options()).momentum();
    };
    const auto f = s::Warmup{1}.then(s::OneCycle{.steps = 4}).then(s::Constant{});
    LrSchedule schedule(optimizer, f, s::Constant{});
    std::vector<double> seen;
    for (int step = 0; step < 6; ++step) {
        seen.push_back(momentum(0));
        CHECK(momentum(1) == 0.3);
        schedule.step();
    }
    CHECK(seen[0] == 0.3);
    CHECK(seen[1] == doctest::Approx(0.95));
    CHECK(seen[4] == doctest::Approx(0.95));
    CHECK(seen[5] == 0.3);

    auto adam = make<AdamW>(AdamWOptions(0.1));
    const LrSchedule cycle(adam, s::Cyclic{});
    CHECK(static_cast<AdamWOptions&>(adam.param_groups()[1].options()).betas() ==
          std::tuple(0.9, 0.999));

    auto adagrad = make<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1));
    CHECK(code_of([&] { LrSchedule(adagrad, s::OneCycle{.steps = 4}); }) == "RT-C83");
    CHECK(rate(adagrad, 0) == 0.1);
    const LrSchedule without(adagrad, s::OneCycle{.steps = 4, .cycle_momentum = false});
    CHECK(rate(adagrad, 0) == doctest::Approx(0.1 / 25));
}

TEST_CASE("LrSchedule.bad_input_is_an_error") {
    auto optimizer = make<SGD>(SGDOptions(0.5));
    const auto fails = [&](auto&&... schedules) {
        return message_of([&] { LrSchedule(optimizer, schedules...); });
    };
    CHECK(contains(fails(s::Constant{}, s::Constant{}, s::Constant{}),
                   "LrSchedule has 3 for 2 parameter groups"));
    CHECK(contains(fails(s::Constant{}, s::Constant{}, s::Constant{}), "RT-C82"));
    CHECK(contains(fails(s::Warmup{-5}), "RT-C80"));
    CHECK(contains(fails([](int) { return std::nan(""); }), "returned nan at step 0"));
    CHECK(contains(fails([](int) { return -1; }), "RT-C84"));
    CHECK(contains(fails([](int) { return 1e308 * 10; }), "RT-C84"));
    CHECK(rate(optimizer, 0) == 0.5);

    LrSchedule schedule(optimizer, s::Constant{});
    const auto snapshot = saved(State{}.add("schedule", schedule));
    SGD single({torch::zeros({2}, torch::requires_grad())}, SGDOptions(0.1));
    LrSchedule other(single, s::Constant{});
    CHECK(code_of([&] { State{}.add("schedule", other).load(snapshot); }) == "RT-K3");
    // A group that is added later.
    optimizer.add_param_group(OptimizerParamGroup({torch::zeros({2}, torch::requires_grad())}));
    CHECK(code_of([&] { schedule.step(); }) == "RT-C82");
}

TEST_CASE("Plateau.lowers_the_rate_and_resumes") {
    const std::vector<double> losses = {3, 2, 2, 2, 1, 1, 1, 1, 1, 0.5, 1, 1, 1, 1, 1, 1, 1};
    const auto rates = [&](std::size_t resume_at) {
        FusedOptimizer<SGD> optimizer(make<SGD>(SGDOptions(1)));
        Plateau plateau(optimizer, {.factor = 0.5, .patience = 1, .cooldown = 1, .min_lr = {0.2}});
        std::vector<std::vector<double>> seen;
        for (std::size_t i = 0; i < resume_at; ++i) {
            plateau.step(losses[i]);
            seen.push_back(plateau.get_last_lr());
        }
        const auto snapshot = saved(State{}.add("optimizer", optimizer).add("plateau", plateau));
        FusedOptimizer<SGD> other(make<SGD>(SGDOptions(1)));
        Plateau resumed(other, {.factor = 0.5, .patience = 1, .cooldown = 1, .min_lr = {0.2}});
        State{}.add("optimizer", other).add("plateau", resumed).load(snapshot);
        for (std::size_t i = resume_at; i < losses.size(); ++i) {
            resumed.step(losses[i]);
            seen.push_back(resumed.get_last_lr());
        }
        return seen;
    };
    const auto expected = rates(0);
    for (std::size_t at = 1; at <= losses.size(); ++at) {
        CHECK(rates(at) == expected);
    }
    // Python's torch 2.13, the first group and the second.
    const std::vector<double> first = {1,    1,    1,   0.5, 0.5, 0.5, 0.25, 0.25, 0.25,
                                       0.25, 0.25, 0.2, 0.2, 0.2, 0.2, 0.2,  0.2};
    const std::vector<double> second = {10,  10,  10,   5,    5,    5,     2.5,   2.5,  2.5,
                                        2.5, 2.5, 1.25, 1.25, 1.25, 0.625, 0.625, 0.625};
    for (std::size_t i = 0; i < losses.size(); ++i) {
        CAPTURE(i);
        CHECK(expected[i][0] == doctest::Approx(first[i]).epsilon(1e-6));
        CHECK(expected[i][1] == doctest::Approx(second[i]).epsilon(1e-6));
    }
}

TEST_CASE("Plateau.bad_options_are_errors") {
    auto optimizer = make<SGD>(SGDOptions(1));
    const auto code = [&](const PlateauOptions& options) {
        return code_of([&] { Plateau(optimizer, options); });
    };
    CHECK(code({.factor = 1}) == "RT-C80");
    CHECK(code({.factor = 1 - 1e-12}) == "RT-C80");
    CHECK(code({.factor = std::nan("")}) == "RT-C80");
    CHECK(code({.factor = -0.5}) == "RT-C80");
    CHECK(code({.patience = -1}) == "RT-C80");
    CHECK(code({.threshold = -1e-4}) == "RT-C80");
    CHECK(code({.cooldown = -1}) == "RT-C80");
    CHECK(code({.min_lr = {std::numeric_limits<double>::infinity()}}) == "RT-C80");
    CHECK(code({.eps = std::nan("")}) == "RT-C80");
    CHECK(code({.min_lr = {0, 0, 0}}) == "RT-C82");
    CHECK(code({.min_lr = {0, 0.1}}).empty());
    CHECK(code({}).empty());
}

} // namespace lr_schedule_test
