// SPDX-License-Identifier: Apache-2.0
// What is shown of models and loops: that the numbers are those of what runs.
#include "support/training.hpp"

#include <rtrain/data/loops.hpp>
#include <rtrain/model/profile/flop_count.hpp>
#include <rtrain/model/profile/model_parts.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/status/loop_status.hpp>
#include <rtrain/trainer.hpp>

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <optional>
#include <string>
#include <vector>

using namespace rtrain;
using rtrain::console::ModelPart;

namespace {

struct Shares : torch::nn::Module {
    explicit Shares(const at::Tensor& weight) { register_parameter("weight", weight); }
};

/// Two of whose parts share a weight, and one of which is frozen.
struct Model : torch::nn::Module {
    Model() {
        const at::Tensor shared = torch::ones({5});
        register_parameter("own", torch::ones({3}));
        register_module("norm", torch::nn::BatchNorm1d(4));
        register_module("one", std::make_shared<Shares>(shared));
        register_module("two", std::make_shared<Shares>(shared));
        register_module("outer", torch::nn::Sequential(torch::nn::ReLU(), torch::nn::Linear(4, 1)));
        for (at::Tensor& parameter : named_children()["outer"]->parameters()) {
            parameter.set_requires_grad(false);
        }
    }
};

/// What a FlopCount says of one step of `forward`, whose output is summed.
template <class Forward>
double flops_of(Forward forward) {
    rtrain::detail::FlopCount count;
    CHECK(!count.of_first_step());
    StepClock& clock = ProcessContext::current().clock;
    (void)clock.enter(StepPart::forward);
    at::Tensor sum = forward().sum();
    (void)clock.enter(StepPart::backward);
    sum.backward();
    clock.add_step();
    (void)clock.enter(StepPart::optimizer);
    const std::optional<double> flops = count.of_first_step();
    REQUIRE(flops);
    torch::mm(torch::ones({9, 9}), torch::ones({9, 9})); // after it
    CHECK(count.of_first_step() == flops);
    return *flops;
}

at::Tensor with_gradient(at::IntArrayRef sizes) {
    return torch::ones(sizes, torch::requires_grad());
}

/// What LoopStatus says within each batch of the first pass.
template <class Batches>
std::vector<LoopStatus::Reading> readings_of(Batches& batches) {
    std::vector<LoopStatus::Reading> readings;
    for ([[maybe_unused]] auto& batch : batches) {
        readings.push_back(ProcessContext::current().loop.read());
    }
    return readings;
}

} // namespace

TEST_CASE("ModelParts.count_what_is_shared_once_and_what_is_frozen_not_as_trainable") {
    const std::vector<ModelPart> parts = rtrain::detail::parts_of(Model());
    const auto check = [&](std::size_t at, const ModelPart& expected) {
        CAPTURE(at);
        const ModelPart& part = parts.at(at);
        CHECK(part.name == expected.name);
        CHECK(part.type == expected.type);
        CHECK(part.depth == expected.depth);
        CHECK(part.parameters == expected.parameters);
        CHECK(part.trainable == expected.trainable);
        CHECK(part.bytes == expected.bytes);
    };
    REQUIRE(parts.size() == 7);
    const std::int64_t buffers = 4 * 4 + 4 * 4 + 8; // means, variances, batches
    check(0, {"", "Model", 0, 3 + 8 + 5 + 5, 3 + 8 + 5, 4 * 21 + buffers});
    check(1, {"norm", "BatchNorm1d", 1, 8, 8, 4 * 8 + buffers});
    check(2, {"one", "Shares", 1, 5, 5, 20});
    check(3, {"two", "Shares", 1, 5, 5, 20});
    check(4, {"outer", "Sequential", 1, 5, 0, 20});
    check(5, {"0", "ReLU", 2, 0, 0, 0});
    check(6, {"1", "Linear", 2, 5, 0, 20});
}

// The numbers are those of torch.utils.flop_counter.FlopCounterMode 2.13, which does not know the
// attention of CPUs, and counts groups twice in what a convolution's weight gets.
TEST_CASE("FlopCount.is_what_torch_counts") {
    namespace f = torch::nn::functional;
    const auto image = [] { return with_gradient({2, 4, 9, 9}); };
    SUBCASE("a product") {
        CHECK(flops_of([] {
                  return torch::mm(with_gradient({2, 3}), with_gradient({3, 5}));
              }) == 3 * 2 * 2 * 3 * 5);
    }
    SUBCASE("a layer whose input needs no gradient") {
        CHECK(
            flops_of([] {
                return torch::addmm(with_gradient({5}), torch::ones({2, 3}), with_gradient({3, 5}));
            }) == 2 * 2 * 2 * 3 * 5);
    }
    SUBCASE("batches of products") {
        CHECK(flops_of([] {
                  return torch::matmul(with_gradient({7, 2, 3}), with_gradient({7, 3, 5}));
              }) == 3 * 2 * 7 * 2 * 3 * 5);
    }
    SUBCASE("a convolution") {
        CHECK(flops_of([&] {
                  return f::conv2d(image(), with_gradient({6, 4, 3, 3}));
              }) == 3 * 2 * 2 * 49 * 6 * 4 * 9);
    }
    SUBCASE("with strides, padding, dilation and groups") {
        CHECK(flops_of([&] {
                  return f::conv2d(
                      image(), with_gradient({6, 2, 3, 3}),
                      f::Conv2dFuncOptions().stride(2).padding(1).dilation(2).groups(2));
              }) == 3 * 2 * 2 * 16 * 6 * 2 * 9);
    }
    SUBCASE("in one dimension") {
        CHECK(flops_of([] {
                  return f::conv1d(with_gradient({2, 4, 9}), with_gradient({6, 4, 3}));
              }) == 3 * 2 * 2 * 7 * 6 * 4 * 3);
    }
    SUBCASE("transposed") {
        CHECK(flops_of([&] {
                  return f::conv_transpose2d(image(), with_gradient({4, 6, 3, 3}));
              }) == 3 * 2 * 2 * 81 * 6 * 4 * 9);
    }
    SUBCASE("attention") {
        const double products = 2.0 * 2 * 3 * 16 * 16 * 8;
        CHECK(flops_of([] {
                  const at::Tensor x = with_gradient({2, 3, 16, 8});
                  return at::scaled_dot_product_attention(x, x, x);
              }) == 2 * products + 5 * products);
    }
}

TEST_CASE("FlopCount.leaves_out_what_is_no_step") {
    rtrain::detail::FlopCount count;
    torch::mm(torch::ones({9, 9}), torch::ones({9, 9})); // no part of a step
    StepClock& clock = ProcessContext::current().clock;
    {
        const StepClock::In forward(ProcessContext::current().clock, StepPart::forward);
        const torch::NoGradGuard evaluating;
        torch::mm(torch::ones({9, 9}), torch::ones({9, 9}));
    }
    clock.add_step();
    CHECK(count.of_first_step() == 0.0);
}

TEST_CASE("LoopStatus.knows_the_length_of_the_loop_that_trains") {
    const auto rows = data::from_tensors({{"x", torch::arange(10)}});
    const auto position = std::make_shared<data::Position>();
    const auto shard = [&](auto policy, data::Dataset of) {
        return data::Shard({.dataset = std::move(of), .policy = policy, .rank = 1, .size = 2},
                           [position] { return position; });
    };
    const auto check = [](const std::vector<LoopStatus::Reading>& readings, std::int64_t first,
                          std::int64_t total) {
        REQUIRE(static_cast<std::int64_t>(readings.size()) == (total > 0 ? total - first : 3));
        for (std::size_t i = 0; i < readings.size(); ++i) {
            CHECK(readings[i].under_way);
            CHECK(readings[i].done == first + static_cast<std::int64_t>(i));
            CHECK(readings[i].length.total == total);
            CHECK(readings[i].length.first == first);
            CHECK(readings[i].length.rows == 2);
            CHECK(readings[i].length.rows_of_all == 4);
        }
        CHECK(!ProcessContext::current().loop.read().under_way);
        CHECK(ProcessContext::current().loop.read().done == readings.back().done + 1);
    };
    SUBCASE("dealt out") {
        auto batches = shard(data::Sharded{}, rows).batches({.size = 2});
        check(readings_of(batches), 0, 3);
    }
    SUBCASE("in one order of all ranks") {
        auto batches = shard(data::Permuted{}, rows).batches({.size = 2});
        check(readings_of(batches), 0, 3);
        CHECK(ProcessContext::current().loop.read().loop > 0);
    }
    SUBCASE("entered in the middle") {
        position->samples = 8;
        auto batches = shard(data::Permuted{}, rows).batches({.size = 2});
        check(readings_of(batches), 2, 3);
    }
    SUBCASE("not counted") {
        const auto all = rows.filter(
            [](const data::Batch& batch) { return torch::ones({batch.size()}, torch::kBool); });
        auto batches =
            data::Shard({.dataset = all, .policy = data::Streaming{}, .agree = [](at::Tensor&) {}},
                        [position] { return position; })
                .batches({.size = 2});
        const auto readings = readings_of(batches);
        REQUIRE(readings.size() == 5);
        CHECK(readings[4].done == 4);
        CHECK(readings[4].length.total == 0);
    }
}

TEST_CASE("LoopStatus.is_that_of_the_outermost_loop_that_trains") {
    const auto rows = data::from_tensors({{"x", torch::arange(6)}});
    const auto batches_of = [&](std::int64_t size) {
        return data::Shard({.dataset = rows, .policy = data::Sharded{}},
                           [] { return std::make_shared<data::Position>(); })
            .batches({.size = size});
    };
    const std::int64_t before = ProcessContext::current().loop.read().loop;
    auto evaluated = batches_of(1);
    {
        const torch::NoGradGuard evaluating;
        (void)readings_of(evaluated);
    }
    CHECK(ProcessContext::current().loop.read().loop == before);
    auto outer = batches_of(3);
    auto inner = batches_of(1);
    for ([[maybe_unused]] auto& batch : outer) {
        for (const LoopStatus::Reading& reading : readings_of(inner)) {
            CHECK(reading.length.total == 2);
            CHECK(reading.loop == before + 1);
        }
    }
    CHECK(ProcessContext::current().loop.read().done == 2);
}

TEST_CASE("LoopStatus.counts_batches_of_a_loader") {
    struct Rows : torch::data::Dataset<Rows> {
        torch::data::Example<> get(std::size_t i) override {
            return {torch::ones({1}) * static_cast<std::int64_t>(i), torch::zeros({1})};
        }
        torch::optional<std::size_t> size() const override { return 10; }
    };
    auto loader = data::make_distributed_loader(
        Rows().map(torch::data::transforms::Stack<>()), torch::data::DataLoaderOptions(2),
        {.epoch = {.rank = 1, .size = 2}, .position = std::make_shared<data::Position>()});
    const auto readings = readings_of(loader);
    REQUIRE(readings.size() == 3);
    CHECK(readings[2].done == 2);
    CHECK(readings[2].length.total == 3);
    CHECK(readings[2].length.rows == 2);
    CHECK(readings[2].length.rows_of_all == 4);
}
