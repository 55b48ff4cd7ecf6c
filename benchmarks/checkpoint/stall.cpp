// SPDX-License-Identifier: Apache-2.0
// What a checkpoint in the background costs training with AdamW, 256 MiB of state: the report, and
// the step beside the copy.
//
//   mpirun -n 2 ./stall_bench async|async-sharded|sharded-model|at-once FRESH_DIRECTORY CHECKPOINTS
//
// Rank 0 prints a JSON line for each checkpoint. stall_peer.py does the same in Python.
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int quiet_steps = 5;
constexpr int rows = 128; ///< of a batch on each rank

/// Seconds that `action` takes on the slowest rank; all begin together.
template <class Action>
double seconds(auto& worker, Action&& action) {
    worker.barrier();
    const auto start = std::chrono::steady_clock::now();
    action();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    return worker.all_reduce(taken.count(), rtrain::ReduceOp::max);
}

template <class C, class Options>
void measure(const std::filesystem::path& storage, int checkpoints, const Options& options,
             bool late_copies) {
    rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Sharded, C> trainer{{
        .scaling = {.threads_per_worker = 1},
        .run = {.name = "run",
                .storage_path = storage,
                .checkpoint = {.num_to_keep = 1, .late_copies = late_copies}},
    }};
    (void)trainer.fit([&](auto& worker) {
        torch::manual_seed(0);
        torch::nn::Sequential layers;
        for (const int out : {2048, 2048, 2048, 2048, 2048, 640}) { // 22.3 million parameters
            layers->push_back(torch::nn::Linear(2048, out));
            layers->push_back(torch::nn::ReLU());
        }
        auto model = worker.prepare(layers, options);
        auto optimizer = worker.prepare(torch::optim::AdamW(model->parameters()));
        const auto state = rtrain::State{}.add("model", model).add("optimizer", optimizer);
        const auto batch = torch::randn({rows, 2048});
        const auto step = [&] {
            return seconds(worker, [&] {
                optimizer.zero_grad();
                model(batch).square().mean().backward();
                optimizer.step();
            });
        };
        for (int number = 0; number < checkpoints; ++number) {
            std::vector<double> quiet(quiet_steps);
            std::ranges::generate(quiet, step);
            std::ranges::sort(quiet);
            const double stall = seconds(worker, [&] {
                worker.report({{"number", number}}, state);
            });
            const double beside = step();
            char name[32];
            std::snprintf(name, sizeof name, "checkpoint_%06d", number);
            while (!worker.broadcast(std::filesystem::exists(worker.run_path() / name))) {
                (void)step();
            }
            const rtrain::Config line{{"checkpoint", number},
                                      {"stall_s", stall},
                                      {"beside_s", beside},
                                      {"quiet_s", quiet[quiet_steps / 2]}};
            if (worker.rank() == 0) {
                std::cout << boost::json::serialize(line) << std::endl;
            }
        }
    });
}

} // namespace

int main(int argc, char** argv) {
    try {
        if (argc != 4 || !rtrain::launch::ranks()) {
            throw std::invalid_argument("run mpirun -n RANKS stall_bench POLICY DIRECTORY "
                                        "CHECKPOINTS");
        }
        const std::string policy = argv[1];
        const int checkpoints = std::stoi(argv[3]);
        using rtrain::DataParallelOptions;
        using rtrain::checkpoint::Async;
        using rtrain::checkpoint::AsyncSharded;
        if (policy == "async") {
            measure<Async>(argv[2], checkpoints, DataParallelOptions{}, true);
        } else if (policy == "async-sharded") {
            measure<AsyncSharded>(argv[2], checkpoints, DataParallelOptions{}, true);
        } else if (policy == "sharded-model") {
            measure<AsyncSharded>(argv[2], checkpoints, rtrain::ShardedOptions{}, true);
        } else if (policy == "at-once") {
            measure<Async>(argv[2], checkpoints, DataParallelOptions{}, false);
        } else {
            throw std::invalid_argument("there is no policy " + policy);
        }
    } catch (const std::exception& error) {
        std::cerr << "stall_bench: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
