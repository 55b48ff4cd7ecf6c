// SPDX-License-Identifier: Apache-2.0
// Models that are made once, not once a rank.
#include "support/status_bytes.hpp"
#include "support/training.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace rtrain;

namespace {

/// With parameters and buffers that a constructor computes, and what modules make by themselves.
struct NetImpl : torch::nn::Module {
    explicit NetImpl(std::int64_t width, bool asks_for_values = false)
        : in(width, width), norm(width), out(width, 1) {
        register_module("in", in);
        register_module("norm", norm);
        register_module("out", out);
        place = register_parameter("place", torch::randn({width}) * 0.02);
        mask = register_buffer("mask", torch::triu(torch::ones({width, width}), 1));
        if (asks_for_values) {
            scale = torch::linspace(1, 2, 5)[2].item<double>();
        }
    }
    torch::Tensor forward(const torch::Tensor& x) {
        return out(norm(in(x + place).matmul(mask)).tanh()) * scale;
    }
    torch::nn::Linear in;
    torch::nn::BatchNorm1d norm;
    torch::nn::Linear out;
    torch::Tensor place;
    torch::Tensor mask;
    double scale = 1;
};
TORCH_MODULE(Net);

void fit(const std::function<void(Worker<backend::Mpi, data::Sharded, checkpoint::None>&)>& train) {
    const test::Directory directory("construct");
    Trainer<backend::Mpi, data::Sharded, checkpoint::None>(
        {.run = {.name = "run", .storage_path = directory.path()}})
        .fit([&](auto& worker) { train(worker); });
}

/// Parameters and buffers behind some steps, and a number that torch draws then.
template <class Model>
std::vector<at::Tensor> trained(auto& worker, Model&& model) {
    auto optimizer = worker.prepare(
        torch::optim::SGD(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)));
    for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        const auto x = torch::full({4, 24}, 0.1 * step + 0.01 * worker.rank());
        model(x + torch::randn({4, 24})).square().mean().backward();
        optimizer.step();
    }
    std::vector<at::Tensor> values{torch::rand({2})};
    for (const auto& parameter : model->parameters()) {
        values.push_back(parameter.detach().clone());
    }
    for (const auto& buffer : model->buffers()) {
        values.push_back(buffer.clone());
    }
    return values;
}

template <class Options>
void check_same_bits(const Options& options, bool asks_for_values) {
    fit([&](auto& worker) {
        torch::manual_seed(5);
        const auto expected = trained(worker, worker.prepare(Net(24, asks_for_values), options));
        torch::manual_seed(5);
        const auto values =
            trained(worker, worker.construct([&] { return Net(24, asks_for_values); }, options));
        REQUIRE(values.size() == expected.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            CAPTURE(i);
            CHECK(values[i].equal(expected[i]));
        }
    });
}

constexpr std::int64_t wide = 4000;

} // namespace

TEST_CASE("Construct.gives_the_bits_of_prepare") {
    check_same_bits(DataParallelOptions{}, false);
    check_same_bits(ShardedOptions{}, false);
}

TEST_CASE("Construct.runs_a_constructor_that_asks_for_values_with_values") {
    check_same_bits(DataParallelOptions{}, true);
    check_same_bits(ShardedOptions{}, true);
}

TEST_CASE("Construct.throws_on_all_ranks_what_one_constructor_throws") {
    fit([](auto& worker) {
        const int culprit = worker.size() - 1;
        const auto make = [&]() -> Net {
            if (worker.rank() == culprit) {
                throw std::runtime_error("no such width");
            }
            return Net(8);
        };
        CHECK_THROWS_WITH(static_cast<void>(worker.construct(make)),
                          doctest::Contains("no such width"));
    });
}

TEST_CASE("Construct.refuses_parameters_that_ranks_keep_for_themselves") {
    fit([](auto& worker) {
        CHECK_THROWS_WITH_AS(static_cast<void>(worker.construct(
                                 [] { return Net(8); }, DataParallelOptions{.ignore = {"place"}})),
                             doctest::Contains("RT-C12"), ConfigError);
    });
}

TEST_CASE("Construct.other_ranks_take_no_memory_for_weights") {
    fit([](auto& worker) {
        constexpr std::int64_t bytes = 4 * wide * wide;
        const std::int64_t idle = test::status_bytes("RssAnon");
        std::int64_t made = 0;
        const auto make = [&] {
            torch::nn::Linear linear(wide, wide);
            made = test::status_bytes("RssAnon") - idle;
            return linear;
        };
        const auto model = worker.construct(make, ShardedOptions{.level = Shard::gradients});
        const std::int64_t prepared = test::status_bytes("RssAnon") - idle;
        CAPTURE(made);
        CAPTURE(prepared);
        CHECK((made > bytes / 2) == (worker.rank() == 0));
        if (worker.size() > 1) { // its part of the gradients
            CHECK(prepared < bytes / worker.size() + (std::int64_t{16} << 20));
        }
    });
}
