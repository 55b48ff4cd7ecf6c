// SPDX-License-Identifier: Apache-2.0
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <rtrain/model/ddp/prepared_call.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <memory>

using namespace rtrain;

TEST_CASE("Model.call_runs_a_function_as_forward" * doctest::timeout(60)) {
    test::Ranks ranks;
    torch::manual_seed(static_cast<std::uint64_t>(ranks.rank()));
    auto model =
        ranks.prepare(std::make_shared<test::NetImpl>(0, true), {.autocast = at::kBFloat16});
    const auto image = torch::randn({4, 28, 28});
    const auto gradient = [&](const std::function<torch::Tensor()>& forward) {
        model->zero_grad();
        model->batch_norm->reset_running_stats();
        const auto output = forward();
        CHECK((output.scalar_type() == at::kFloat));
        output.square().mean().backward();
        return model->in->weight.grad().clone();
    };
    const auto by_handle = gradient([&] { return model(image); });
    const auto by_call =
        gradient([&] { return model.call([&] { return model->forward(image); }); });
    CHECK(by_handle.equal(by_call));
    CHECK(ranks.agree(by_call));
    int calls = 0;
    const torch::NoGradGuard no_grad;
    model.call([&] { ++calls; });
    CHECK(calls == 1);
}
