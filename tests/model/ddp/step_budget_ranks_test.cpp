// SPDX-License-Identifier: Apache-2.0
// What rtrain adds to a step of a small model, where dispatch is the cost: operators of libtorch,
// and allocations. They are the same in every run, unlike times.
#include "model/sharded/models.hpp"

#include <ATen/record_function.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>

namespace {

struct Counts {
    std::int64_t operators = 0;
    std::int64_t allocations = 0;
};
thread_local Counts counts; // CPU: backward runs in the thread that calls it

} // namespace

void* operator new(std::size_t bytes) {
    ++counts.allocations;
    if (void* const memory = std::malloc(std::max<std::size_t>(bytes, 1))) {
        return memory;
    }
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
    std::free(memory);
}

using namespace test;

namespace {

/// The least of some steps, after the first ones, in which the model tries ways to step: a step
/// that waits for another rank prepares an error message.
Counts counts_of(const std::function<void()>& step) {
    constexpr int tried = 32;
    constexpr int counted = 8;
    const auto handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& /*call*/)
                                       -> std::unique_ptr<at::ObserverContext> {
            ++counts.operators;
            return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
    Counts least{1 << 30, 1 << 30};
    for (int i = 0; i < tried + counted; ++i) {
        const Counts before = counts;
        step();
        if (i >= tried) {
            least.operators = std::min(least.operators, counts.operators - before.operators);
            least.allocations =
                std::min(least.allocations, counts.allocations - before.allocations);
        }
    }
    at::removeCallback(handle);
    return least;
}

std::shared_ptr<MlpImpl> make_small() {
    return std::make_shared<MlpImpl>(std::vector<std::int64_t>{784, 128, 128, 10});
}

/// Those of a step by `forward` and the optimizer; `clip` between backward and the step.
template <class Optimizer>
Counts counts_of(Ranks& ranks, const std::function<torch::Tensor(const torch::Tensor&)>& forward,
                 Optimizer& optimizer, const std::function<void()>& clip) {
    const auto x = random(ranks.rank(), 1, {32, 784});
    const auto y = torch::arange(32) % 10;
    return counts_of([&] {
        optimizer.zero_grad();
        torch::cross_entropy_loss(forward(x), y).backward();
        clip();
        optimizer.step();
    });
}

} // namespace

TEST_CASE("StepBudget.a_prepared_model_adds_few_operators_and_allocations") {
    Ranks ranks;
    if (ranks.mpi->local_size() < ranks.size()) {
        return; // between nodes, buckets are copied
    }
    const auto nothing = [] {};
    const auto module = make_small();
    torch::optim::SGD sgd(module->parameters(), 1e-3);
    const auto bare = [&](const torch::Tensor& x) { return module->forward(x); };
    const Counts alone = counts_of(ranks, bare, sgd, nothing);
    const Counts alone_clipped = counts_of(ranks, bare, sgd, [&] {
        (void)torch::nn::utils::clip_grad_norm_(module->parameters(), 1);
    });

    auto model = ranks.prepare(make_small());
    auto optimizer = prepared(torch::optim::SGD(model->parameters(), 1e-3), model);
    const auto call = [&](const torch::Tensor& x) { return model(x); };
    const Counts together = counts_of(ranks, call, optimizer, nothing);
    const Counts together_clipped =
        counts_of(ranks, call, optimizer, [&] { (void)model.clip_grad_norm_(1); });

    CAPTURE(alone.operators);
    CAPTURE(alone_clipped.operators);
    CAPTURE(alone.allocations);
    CAPTURE(alone_clipped.allocations);
    CHECK(together.operators <= alone.operators);
    constexpr std::int64_t to_float64 = 4; // operators: norms are combined in it
    CHECK(together_clipped.operators <= alone_clipped.operators + to_float64);
    CHECK(together.allocations <= alone.allocations);
    CHECK(together_clipped.allocations <= alone_clipped.allocations);
}
