// SPDX-License-Identifier: Apache-2.0
// Prepared optimizers against the plain ones of torch::optim.
#include "support/training.hpp"

#include <rtrain/model/optimizer/fused_optimizer.hpp>

#include <doctest/doctest.h>

#include <functional>

using namespace rtrain;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

namespace {

/// Parameters of many kinds, in two groups; the same in every set.
struct Parameters {
    std::vector<torch::Tensor> first;
    std::vector<torch::Tensor> second;

    Parameters() {
        torch::manual_seed(1);
        const auto leaf = [](torch::Tensor values) { return values.set_requires_grad(true); };
        first = {leaf(torch::randn({5, 3})), leaf(torch::randn({3, 5}).t()),
                 leaf(torch::randn({4, 6}).slice(1, 1, 4)), leaf(torch::randn({1}))};
        second = {leaf(torch::randn({7}, torch::kDouble)), leaf(torch::randn({2, 1, 3})),
                  leaf(torch::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast)),
                  torch::randn({3}) /* frozen */};
    }

    [[nodiscard]] std::vector<torch::Tensor> all() const {
        auto both = first;
        both.insert(both.end(), second.begin(), second.end());
        return both;
    }

    /// A step's gradients: one parameter has none in every third step.
    void set_gradients(int step) {
        torch::manual_seed(static_cast<std::uint64_t>(step));
        int i = 0;
        for (auto& parameter : all()) {
            const auto gradient = torch::randn(parameter.sizes(), parameter.options());
            const bool used = parameter.requires_grad() && (i++ != 1 || step % 3 != 1);
            parameter.mutable_grad() = used ? gradient : torch::Tensor();
        }
    }
};

template <class O, class Options>
O make(const Parameters& parameters, const Options& options) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(parameters.first, std::make_unique<Options>(options));
    auto other = std::make_unique<Options>(options);
    other->lr(options.lr() * 3);
    groups.emplace_back(parameters.second, std::move(other));
    return O(groups, options);
}

void check_close(const Parameters& mine, const Parameters& theirs) {
    for (std::size_t i = 0; i < mine.all().size(); ++i) {
        CAPTURE(i);
        CHECK(torch::allclose(mine.all()[i], theirs.all()[i], 1e-5, 1e-6));
    }
}

template <class O, class Options>
void train_both_ways(const Options& options) {
    Parameters mine;
    Parameters theirs;
    FusedOptimizer<O> fused(make<O>(mine, options));
    O plain = make<O>(theirs, options);
    torch::optim::StepLR my_schedule(fused, 7, 0.5);
    torch::optim::StepLR their_schedule(plain, 7, 0.5);
    for (int step = 0; step < 20; ++step) {
        mine.set_gradients(step);
        theirs.set_gradients(step);
        fused.step();
        plain.step();
        my_schedule.step();
        their_schedule.step();
    }
    check_close(mine, theirs);
    const Parameters start;
    CHECK(!torch::allclose(mine.first[1], start.first[1], 1e-3, 1e-3));
    CHECK(mine.second[3].equal(start.second[3]));
}

} // namespace

TEST_CASE("FusedOptimizer.sgd_equals_torchs") {
    train_both_ways<SGD>(SGDOptions(0.1));
    train_both_ways<SGD>(SGDOptions(0.1).weight_decay(0.1));
    train_both_ways<SGD>(SGDOptions(0.1).momentum(0.9));
    train_both_ways<SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.2).weight_decay(0.05));
    train_both_ways<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.05));
}

TEST_CASE("FusedOptimizer.adam_equals_torchs") {
    train_both_ways<Adam>(AdamOptions(0.01));
    train_both_ways<Adam>(AdamOptions(0.01).weight_decay(0.1).betas({0.8, 0.95}).eps(1e-4));
    train_both_ways<Adam>(AdamOptions(0.01).amsgrad(true));
}

TEST_CASE("FusedOptimizer.adamw_equals_torchs") {
    train_both_ways<AdamW>(AdamWOptions(0.01));
    train_both_ways<AdamW>(AdamWOptions(0.01).weight_decay(0.1).betas({0.8, 0.95}).eps(1e-4));
    train_both_ways<AdamW>(AdamWOptions(0.01).amsgrad(true));
}

namespace {

/// Ten steps with a checkpoint after the fifth, written by `Before` and read by `After`.
template <class Before, class After, class O, class Options>
Parameters train_with_checkpoint(const Options& options, checkpoint::Snapshot& snapshot) {
    Parameters parameters;
    {
        Before before(make<O>(parameters, options));
        for (int step = 0; step < 5; ++step) {
            parameters.set_gradients(step);
            before.step();
        }
        State{}.add("optimizer", before).save(snapshot);
    }
    After after(make<O>(parameters, options));
    State{}.add("optimizer", after).load(snapshot);
    for (int step = 5; step < 10; ++step) {
        parameters.set_gradients(step);
        after.step();
    }
    return parameters;
}

template <class O, class Options>
void check_checkpoints(const Options& options) {
    checkpoint::Snapshot plain;
    checkpoint::Snapshot fused;
    const auto expected = train_with_checkpoint<O, O, O>(options, plain);
    check_close(train_with_checkpoint<FusedOptimizer<O>, O, O>(options, fused), expected);
    REQUIRE(plain.tensors.size() == fused.tensors.size());
    for (const auto& [name, tensor] : plain.tensors) {
        CAPTURE(name);
        REQUIRE(fused.tensors.count(name) == 1);
        CHECK(torch::allclose(tensor, fused.tensors.at(name), 1e-5, 1e-6));
    }
    CHECK(plain.values == fused.values);
    check_close(train_with_checkpoint<O, FusedOptimizer<O>, O>(options, plain), expected);
    check_close(train_with_checkpoint<FusedOptimizer<O>, FusedOptimizer<O>, O>(options, plain),
                expected);
}

} // namespace

TEST_CASE("FusedOptimizer.exchanges_checkpoints_with_torchs") {
    check_checkpoints<SGD>(SGDOptions(0.1).momentum(0.9));
    check_checkpoints<Adam>(AdamOptions(0.01).amsgrad(true));
    check_checkpoints<AdamW>(AdamWOptions(0.01));
}

TEST_CASE("FusedOptimizer.takes_sparse_gradients") {
    for (const bool fused : {false, true}) {
        auto weight = torch::ones({4, 2}).set_requires_grad(true);
        auto& gradient = weight.mutable_grad();
        gradient = torch::sparse_coo_tensor(torch::tensor({{1, 1, 3}}), torch::ones({3, 2}));
        SGD plain({weight}, SGDOptions(0.5));
        if (fused) {
            FusedOptimizer<SGD>(std::move(plain)).step();
        } else {
            plain.step();
        }
        CHECK(weight.select(1, 0).equal(torch::tensor({1.0F, 0.0F, 1.0F, 0.5F})));
    }
}

TEST_CASE("FusedOptimizer.steps_with_a_closure") {
    auto weight = torch::ones({2}).set_requires_grad(true);
    FusedOptimizer<Adam> optimizer(Adam({weight}, AdamOptions(0.1)));
    const auto loss = optimizer.step([&] {
        optimizer.zero_grad();
        auto value = weight.square().sum();
        value.backward();
        return value;
    });
    CHECK(loss.item<double>() == 2);
    CHECK(weight[0].item<double>() == doctest::Approx(0.9));
}

TEST_CASE("FusedOptimizer.refuses_what_it_cannot_update") {
    static_assert(rtrain::detail::Fusible<SGD> && rtrain::detail::Fusible<Adam> &&
                  rtrain::detail::Fusible<AdamW>);
    static_assert(!rtrain::detail::Fusible<torch::optim::LBFGS> && !rtrain::detail::Fusible<int>);
    auto weight = torch::ones({2}, torch::kComplexFloat).set_requires_grad(true);
    weight.mutable_grad() = torch::ones({2}, torch::kComplexFloat);
    FusedOptimizer<SGD> optimizer(SGD({weight}, SGDOptions(0.1)));
    CHECK(test::code_of([&] { optimizer.step(); }) == "RT-M8");
    CHECK(!rtrain::detail::same_layout(torch::ones({9, 4}), torch::ones({2, 4})));
}

TEST_CASE("FusedOptimizer.resumes_in_a_run") {
    const test::Directory directory("fused-optimizer");
    const auto train = [&](const char* name, bool resume) {
        Trainer<backend::Local> trainer{{.run = {.name = name, .storage_path = directory.path()}}};
        torch::Tensor weights;
        trainer.fit([&](auto& worker) {
            torch::manual_seed(1);
            auto model = worker.prepare(torch::nn::Linear(4, 2));
            auto optimizer =
                worker.prepare(Adam(model->parameters(), AdamOptions(0.1).weight_decay(0.01)));
            auto state = State{}.add("model", model).add("optimizer", optimizer);
            for (const int epoch : worker.epochs(resume ? 6 : 3, state)) {
                optimizer.zero_grad();
                model(torch::full({3, 4}, epoch + 1.0)).square().mean().backward();
                CHECK(model.clip_grad_norm_(0.5) > 0.5);
                optimizer.step();
                worker.report({{"epoch", epoch}}, state);
            }
            weights = test::flat(*model).clone();
        });
        return weights;
    };
    (void)train("stopped", false);
    CHECK(train("stopped", true).equal(train("straight", true)));
}
