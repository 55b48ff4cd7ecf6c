// SPDX-License-Identifier: Apache-2.0
// Gradients that backward allocates in memory that the ranks share, against copied ones.
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <rtrain/model/parameters/faster_way.hpp>

#include <c10/core/CPUAllocator.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <stdexcept>

using namespace rtrain;
using test::Ranks;

namespace {

constexpr int width = 136; // 136 x 136 float32: more than 64 KiB

/// Layers of equal size, whose gradients nothing but their order tells apart.
struct EqualLayersImpl : torch::nn::Module {
    EqualLayersImpl() {
        torch::manual_seed(5);
        for (int i = 0; i < 3; ++i) {
            layers->push_back(torch::nn::Linear(width, width));
        }
        register_module("layers", layers);
        scattered = register_parameter("scattered", torch::randn({width, width}).t());
    }
    torch::Tensor forward(torch::Tensor x) {
        for (int i = 0; i < 3; ++i) {
            // In another order in every other call; the activations are as large as the weights.
            x = torch::tanh(layers[(i + calls) % 3]->as<torch::nn::Linear>()->forward(x));
        }
        calls += reorders ? 1 : 0;
        return torch::matmul(x, scattered);
    }
    torch::nn::ModuleList layers;
    torch::Tensor scattered;
    int calls = 0;
    bool reorders = false;
};

torch::Tensor input_of(int rank, int step, int rows = width) {
    return torch::linspace(-1, 1, rows * width).view({rows, width}) * (rank + 1) + 0.01 * step;
}

/// True for memory that libtorch could have allocated: parameters in buckets follow a bias of 136
/// elements, which is no multiple of 64 bytes.
bool is_aligned(const torch::Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 64 == 0;
}

using Step = std::function<void(EqualLayersImpl&, const torch::Tensor& loss, int step)>;

/// Weights and gradients after six steps.
std::vector<torch::Tensor> train(Ranks& ranks, bool views, bool reorders, const Step& backward,
                                 int rows = width) {
    auto module = std::make_shared<EqualLayersImpl>();
    module->reorders = reorders;
    auto model = ranks.prepare(module, {.gradient_as_bucket_view = views});
    torch::optim::SGD sgd(module->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
    for (int step = 0; step < 6; ++step) {
        sgd.zero_grad();
        backward(*module, model(input_of(ranks.rank(), step, rows)).square().mean(), step);
        sgd.step();
    }
    std::vector<torch::Tensor> result;
    for (const auto& parameter : module->parameters()) {
        result.push_back(parameter.detach().clone());
        result.push_back(parameter.grad().clone());
    }
    return result;
}

void check_same(const std::vector<torch::Tensor>& some, const std::vector<torch::Tensor>& others) {
    REQUIRE(some.size() == others.size());
    for (std::size_t i = 0; i < some.size(); ++i) {
        CAPTURE(i);
        CHECK(some[i].equal(others[i]));
    }
}

struct Counting final : c10::Allocator {
    explicit Counting(c10::Allocator* to) : before(to) {}
    c10::DataPtr allocate(std::size_t bytes) override {
        ++calls;
        return before->allocate(bytes);
    }
    [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return before->raw_deleter(); }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
        default_copy_data(to, from, bytes);
    }
    c10::Allocator* before;
    int calls = 0;
};

void plain(EqualLayersImpl& /*module*/, const torch::Tensor& loss, int /*step*/) {
    loss.backward();
}

} // namespace

TEST_CASE("GradientArena.gives_the_bits_of_copied_gradients") {
    Ranks ranks;
    Step step = plain;
    bool reorders = false;
    SUBCASE("plain") {}
    SUBCASE("layers that change their order") {
        reorders = true;
    }
    SUBCASE("gradients that the user keeps") {
        auto kept = std::make_shared<std::vector<torch::Tensor>>();
        step = [kept](EqualLayersImpl& module, const torch::Tensor& loss, int i) {
            loss.backward();
            kept->push_back(module.parameters()[static_cast<std::size_t>(i) % 4].grad());
        };
    }
    SUBCASE("accumulation without zero_grad") {
        step = [](EqualLayersImpl&, const torch::Tensor& loss, int) {
            loss.backward({}, true);
            loss.backward();
        };
    }
    SUBCASE("a graph of gradients") {
        step = [](EqualLayersImpl& module, const torch::Tensor& loss, int) {
            const auto gradient =
                torch::autograd::grad({loss}, {module.scattered}, {}, true, true)[0];
            (loss + gradient.square().sum()).backward();
        };
    }
    SUBCASE("an exception in backward") {
        step = [](EqualLayersImpl& module, const torch::Tensor& loss, int i) {
            if (i == 2) {
                const auto hook = module.scattered.register_hook(
                    [](const torch::Tensor&) -> torch::Tensor { throw std::runtime_error("no"); });
                CHECK_THROWS(loss.backward({}, true));
                module.scattered.remove_hook(hook);
                module.zero_grad();
            }
            loss.backward();
        };
    }
    SUBCASE("a hook that replaces a gradient") {
        step = [](EqualLayersImpl& module, const torch::Tensor& loss, int) {
            const auto hook = module.scattered.register_hook(
                [](const torch::Tensor& gradient) { return gradient * 2; });
            loss.backward();
            module.scattered.remove_hook(hook);
        };
    }
    check_same(train(ranks, true, reorders, step), train(ranks, false, reorders, step));
}

TEST_CASE("GradientArena.saves_the_copy") {
    Ranks ranks;
    if (ranks.size() == 1 || ranks.mpi->local_size() < ranks.size()) {
        return; // nothing is reduced, or between nodes
    }
    bool all = false; // in some step: in others it tries the copy
    const auto step = [&](EqualLayersImpl& module, const torch::Tensor& loss, int) {
        loss.backward();
        all = all || std::all_of(module.layers->begin(), module.layers->end(), [](auto& layer) {
                  return is_aligned(layer->template as<torch::nn::Linear>()->weight.grad());
              });
    };
    (void)train(ranks, true, false, step, 40); // no activation is as large as a weight
    CHECK(all);
}

TEST_CASE("FasterWay.is_the_one_with_the_least_time") {
    using Time = rtrain::detail::FasterWay::Clock::duration;
    for (const std::size_t faster : {std::size_t{0}, std::size_t{1}}) {
        rtrain::detail::FasterWay ways;
        std::array<int, 2> taken = {};
        for (int round = 0; round < 100; ++round) {
            const std::size_t way = ways.way();
            ++taken[way];
            ways.count(Time(way == faster ? 100 : 101) + Time(round / 2 % 3));
        }
        CHECK(ways.way() == faster);
        CHECK(taken[faster] > 80);
        CHECK(taken[1 - faster] > 4);
    }
}

TEST_CASE("GradientArena.tensors_outlive_the_model") {
    Ranks ranks;
    torch::Tensor gradient;
    torch::Tensor expected;
    (void)train(ranks, true, false, [&](EqualLayersImpl& module, const torch::Tensor& loss, int) {
        loss.backward();
        gradient = module.layers[1]->as<torch::nn::Linear>()->weight.grad();
        expected = gradient.clone();
    });
    ranks.mpi->barrier(); // all ranks have destroyed the model
    CHECK(gradient.equal(expected));
    gradient.zero_(); // still writable
    CHECK(gradient.sum().item<float>() == 0);
}

TEST_CASE("GradientArena.weights_of_ranks_apply") {
    Ranks ranks;
    const auto gradients = [&](bool views) {
        auto module = std::make_shared<EqualLayersImpl>();
        auto model = ranks.prepare(module, {.gradient_as_bucket_view = views});
        std::vector<torch::Tensor> result;
        for (int step = 0; step < 3; ++step) {
            module->zero_grad();
            {
                const auto alone = model.no_sync();
                model(input_of(ranks.rank(), step)).square().mean().backward();
            }
            model(input_of(ranks.rank(), step + 1)).square().mean().backward();
            (void)model.clip_grad_norm_(0.5);
            for (const auto& parameter : module->parameters()) {
                result.push_back(parameter.grad().clone());
            }
        }
        return result;
    };
    const auto some = gradients(true);
    const auto others = gradients(false);
    for (std::size_t i = 0; i < some.size(); ++i) { // clipping adds up in another order
        CHECK(torch::allclose(some[i], others[i], 1e-5, 1e-7));
    }
}

TEST_CASE("GradientArena.ranks_that_differ_in_where_gradients_are_compute_the_same") {
    Ranks ranks;
    auto module = std::make_shared<EqualLayersImpl>();
    auto model = ranks.prepare(module);
    auto* const before = c10::GetCPUAllocator();
    Counting counting(c10::GetDefaultCPUAllocator());
    if (ranks.rank() % 2 == 1) {
        c10::SetCPUAllocator(&counting); // copies all gradients
    }
    torch::optim::SGD sgd(module->parameters(), 0.1);
    for (int step = 0; step < 5; ++step) {
        sgd.zero_grad();
        model(input_of(ranks.rank(), step, 40)).square().mean().backward();
        (void)model.clip_grad_norm_(0.01);
        sgd.step();
    }
    c10::SetCPUAllocator(before);
    for (const auto& parameter : module->parameters()) {
        CHECK(ranks.agree(parameter));
    }
}

TEST_CASE("GradientArena.leaves_a_users_allocator") {
    Ranks ranks;
    (void)train(ranks, true, false, plain); // an arena has been installed
    auto* const before = c10::GetCPUAllocator();
    Counting counting(before);
    c10::SetCPUAllocator(&counting);
    const auto some = train(ranks, true, false, plain);
    c10::SetCPUAllocator(before);
    CHECK(counting.calls > 0);
    check_same(some, train(ranks, true, false, plain));

    void* const raw = c10::GetCPUAllocator()->raw_allocate(1000);
    c10::GetCPUAllocator()->raw_deallocate(raw);
}
