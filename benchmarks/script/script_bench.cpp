// SPDX-License-Identifier: Apache-2.0
// The cost of a step of a ScriptModel, beside the same loop with torch::jit::Module on bare
// libtorch, and the same network written with torch::nn. Rounds are interleaved; the fastest
// counts.
//
//   python3 benchmarks/script/export.py DIRECTORY
//   script_bench DIRECTORY [rounds]          one process
//   mpirun -n 2 script_bench DIRECTORY       rows/s of two ranks
#include <rtrain/script.hpp>
#include <rtrain/trainer.hpp>

#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr int layers = 3;
constexpr int steps = 50;
constexpr std::int64_t rows = 32;

torch::nn::Sequential native(std::int64_t units) {
    torch::nn::Sequential net;
    for (int i = 0; i < layers; ++i) {
        net->push_back(torch::nn::Linear(units, units));
        net->push_back(torch::nn::ReLU());
    }
    net->push_back(torch::nn::Linear(units, 10));
    return net;
}

/// Seconds of a step.
template <class Forward>
double time_steps(const Forward& forward, torch::optim::Optimizer& optimizer,
                  const torch::Tensor& x, const torch::Tensor& y) {
    const auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        optimizer.zero_grad();
        torch::cross_entropy_loss(forward(x), y).backward();
        optimizer.step();
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / steps;
}

struct Measure {
    std::string directory;
    int rounds;

    void operator()(auto& worker, const rtrain::Config& /*config*/) const {
        for (const std::int64_t units : {128, 512}) {
            measure(worker, units);
        }
    }

    void measure(auto& worker, std::int64_t units) const {
        const std::string file = directory + "/mlp" + std::to_string(units) + ".pt";
        auto model = worker.prepare(rtrain::ScriptModel(file));
        auto bare = torch::jit::load(file);
        std::vector<torch::Tensor> parameters;
        for (const auto& parameter : bare.parameters()) {
            parameters.push_back(parameter);
        }
        auto same = native(units);
        torch::optim::SGD of_model(model->parameters(), 0.01);
        torch::optim::SGD of_bare(parameters, 0.01);
        torch::optim::SGD of_same(same->parameters(), 0.01);
        const auto x = torch::randn({rows, units});
        const auto y = torch::randint(10, {rows}, torch::kLong);
        std::array<double, 3> best{1e9, 1e9, 1e9};
        for (int round = 0; round < rounds; ++round) {
            const auto keep = [&](std::size_t which, double seconds) {
                best[which] = std::min(best[which], seconds);
            };
            keep(0, time_steps([&](const auto& in) { return model(in); }, of_model, x, y));
            if (worker.size() == 1) {
                keep(1, time_steps([&](const auto& in) { return bare.forward({in}).toTensor(); },
                                   of_bare, x, y));
                keep(2,
                     time_steps([&](const auto& in) { return same->forward(in); }, of_same, x, y));
            }
        }
        if (worker.rank() != 0) {
            return;
        }
        if (worker.size() == 1) {
            std::printf("%lld units: ScriptModel %.1f us, torch::jit::Module %.1f us (ratio %.3f), "
                        "torch::nn %.1f us\n",
                        static_cast<long long>(units), best[0] * 1e6, best[1] * 1e6,
                        best[0] / best[1], best[2] * 1e6);
        } else {
            std::printf("%lld units, %d ranks: ScriptModel %.1f us a step, %.0f rows/s\n",
                        static_cast<long long>(units), worker.size(), best[0] * 1e6,
                        static_cast<double>(rows * worker.size()) / best[0]);
        }
        std::fflush(stdout);
    }
};

} // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: script_bench <directory of export.py> [rounds]\n");
        return 2;
    }
    rtrain::Trainer<> trainer{
        {.scaling = {.num_workers = rtrain::launch::ranks().value_or(1), .threads_per_worker = 1},
         .run = {.storage_path = std::string(argv[1]) + "/results", .console = {.verbose = 0}}}};
    (void)trainer.fit(Measure{argv[1], argc > 2 ? std::atoi(argv[2]) : 40});
}
