// SPDX-License-Identifier: Apache-2.0
// What the same bits on 1, 2 and 4 ranks cost: docs/data-order.md.
//
//   mpirun -n 2 ./determinism STORAGE_DIRECTORY ROUNDS WIDTH...
//   mpirun -n 2 ./determinism /tmp/determinism 7 64 512
//
// Trains a classifier of 784-WIDTH-WIDTH-10 with Adam and dropout on 4096 random rows, in steps of
// 8 micro-batches of 32 rows. For each width, rank 0 prints a JSON line: microseconds of a step,
// the median of the epochs but the first, by default, with every setting of the deterministic
// option, and with that but for the order of sums. Each has a run of its own; the three take turns.
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

torch::nn::Sequential classifier(std::int64_t width) {
    return torch::nn::Sequential(torch::nn::Linear(784, width), torch::nn::ReLU(),
                                 torch::nn::Dropout(0.1), torch::nn::Linear(width, width),
                                 torch::nn::ReLU(), torch::nn::Dropout(0.1),
                                 torch::nn::Linear(width, 10));
}

/// Seconds of the fastest step; its slowest rank counts.
double train(auto& worker, std::int64_t width, bool by_batch, bool by_sums) {
    if (by_batch) {
        worker.enable_reproducibility(1);
    }
    auto model = worker.prepare(classifier(width),
                                {.reduction_order = by_sums ? rtrain::ReductionOrder::micro_batches
                                                            : rtrain::ReductionOrder::ranks});
    auto optimizer = worker.prepare(torch::optim::Adam(model->parameters()));
    auto batches =
        worker.dataset_shard("train").batches({.size = 32, .shuffle = true, .micro_batches = 8});
    double least = std::numeric_limits<double>::max();
    for (int epoch = 0; epoch < 2; ++epoch) {
        worker.barrier();
        auto start = Clock::now();
        for (auto& batch : batches) {
            const auto loss = torch::cross_entropy_loss(model->forward(batch["x"]), batch["y"]) /
                              static_cast<double>(batches.passes());
            if (!batches.step_ends()) {
                const auto guard = model.no_sync();
                loss.backward();
                continue;
            }
            loss.backward();
            optimizer.step();
            optimizer.zero_grad();
            worker.barrier();
            const auto end = Clock::now();
            least = std::min(least, std::chrono::duration<double>(end - start).count());
            start = end;
        }
    }
    return worker.all_reduce(least, rtrain::ReduceOp::max);
}

template <class D>
double run(const std::string& storage, std::int64_t width, bool by_batch, bool by_sums) {
    torch::manual_seed(2);
    const auto rows = rtrain::data::from_tensors(
        {{"x", torch::randn({4096, 784})}, {"y", torch::randint(10, {4096}, torch::kLong)}});
    rtrain::Trainer<rtrain::backend::Mpi, D> trainer(
        {.scaling = {.num_workers = rtrain::launch::ranks().value_or(1), .threads_per_worker = 1},
         .run = {.name = "determinism", .storage_path = storage},
         .datasets = {{"train", rows}}});
    double seconds = 0;
    trainer.fit([&](auto& worker) { seconds = train(worker, width, by_batch, by_sums); });
    at::globalContext().setDeterministicAlgorithms(false, false);
    return seconds;
}

int measure(const std::string& storage, int rounds, const std::vector<std::int64_t>& widths) {
    for (const std::int64_t width : widths) {
        using rtrain::data::Permuted;
        using rtrain::data::Sharded;
        double usual = std::numeric_limits<double>::max();
        double batches = usual;
        double all = usual;
        for (int round = 0; round < rounds; ++round) {
            usual = std::min(usual, run<Sharded>(storage, width, false, false));
            batches = std::min(batches, run<Permuted>(storage, width, true, false));
            all = std::min(all, run<Permuted>(storage, width, true, true));
        }
        if (rtrain::launch::env_int("OMPI_COMM_WORLD_RANK").value_or(0) == 0) {
            std::printf("{\"ranks\": %d, \"width\": %lld, \"default_us\": %.0f, "
                        "\"but_sums_us\": %.0f, \"deterministic_us\": %.0f, \"ratio\": %.3f}\n",
                        rtrain::launch::ranks().value_or(1), static_cast<long long>(width),
                        1e6 * usual, 1e6 * batches, 1e6 * all, all / usual);
        }
    }
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 4) {
        std::cerr << "usage: determinism STORAGE_DIRECTORY ROUNDS WIDTH...\n";
        return 2;
    }
    std::vector<std::int64_t> widths;
    for (int i = 3; i < argc; ++i) {
        widths.push_back(std::atoll(argv[i]));
    }
    try {
        return measure(argv[1], std::atoi(argv[2]), widths);
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
