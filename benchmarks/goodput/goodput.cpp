// SPDX-License-Identifier: Apache-2.0
// A training of two ranks and a fixed number of steps, whose ranks are killed meanwhile.
//
//   goodput_bench DIRECTORY STEPS MTBF_S       launches two ranks itself
//
// MTBF_S is the mean time between failures that it is told, by which it chooses its checkpoints; 0:
// it makes none. The state is 101 MiB large: a table of embeddings with the moments of a sparse
// Adam, of which each step changes some rows, and a small network. A step takes 50 ms, most of it
// in a pause that stands for a device that computes: so ranks disturb each other little where they
// share processors.
//
// Its marks: "restored": the state of that step is loaded, "step": a step is done, "reported": its
// report has returned. At the end it prints a line of JSON.
#include "../marks.hpp"

#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <limits>
#include <string>
#include <thread>

namespace {

constexpr int ranks = 2;
constexpr long report_every = 5; // steps
constexpr std::chrono::milliseconds step_time{50};

/// Embeddings, of which a step changes only the rows that its batch has.
struct Table {
    at::Tensor weight = torch::randn({65536, 128});
    at::Tensor mean = torch::zeros_like(weight);
    at::Tensor square = torch::zeros_like(weight);

    void step() {
        const auto rows = torch::randint(weight.size(0), {256}, torch::kLong);
        const auto gradient = torch::randn({256, weight.size(1)});
        mean.index_put_({rows}, 0.9 * mean.index({rows}) + 0.1 * gradient);
        square.index_put_({rows}, 0.999 * square.index({rows}) + 0.001 * gradient.square());
        weight.index_put_({rows}, weight.index({rows}) - 1e-3 * mean.index({rows}) /
                                                             (square.index({rows}).sqrt() + 1e-8));
    }
    void save(rtrain::StateWriter& out) const {
        out.tensor("weight", weight);
        out.tensor("mean", mean);
        out.tensor("square", square);
    }
    void load(const rtrain::StateReader& in) {
        weight.copy_(in.tensor("weight"));
        mean.copy_(in.tensor("mean"));
        square.copy_(in.tensor("square"));
    }
};

struct Train {
    const Marks& marks;
    long steps;

    void operator()(auto& worker) const {
        torch::manual_seed(0);
        Table table;
        auto model = worker.prepare(torch::nn::Sequential(
            torch::nn::Linear(784, 512), torch::nn::ReLU(), torch::nn::Linear(512, 10)));
        torch::optim::Adam optimizer(model->parameters());
        long step = 0;
        auto state = rtrain::State{}
                         .add("table", table)
                         .add("model", model)
                         .add("optimizer", optimizer)
                         .add("step", step);
        worker.restore(state);
        marks.add(worker.rank(), "restored", step);
        while (step < steps) {
            const auto begin = std::chrono::steady_clock::now();
            optimizer.zero_grad();
            const auto image = torch::randn({8, 784});
            const auto label = torch::randint(10, {8}, torch::kLong);
            torch::cross_entropy_loss(model(image), label).backward();
            optimizer.step();
            table.step();
            std::this_thread::sleep_until(begin + step_time);
            marks.add(worker.rank(), "step", ++step);
            if (step % report_every == 0) {
                worker.report({{"step", step}}, state);
                marks.add(worker.rank(), "reported", step);
            }
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::cerr << "usage: goodput_bench DIRECTORY STEPS MTBF_S\n";
        return 2;
    }
    const Marks marks(argv[1]);
    const double mean_s = std::stod(argv[3]);
    rtrain::CheckpointConfig checkpoint{.num_to_keep = 2};
    if (mean_s > 0) {
        checkpoint.mean_time_between_failures_s = mean_s;
    } else {
        checkpoint.frequency = std::numeric_limits<int>::max();
    }
    try {
        const auto result =
            rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Sharded,
                            rtrain::checkpoint::AsyncSharded>(
                {.scaling = {.num_workers = ranks, .threads_per_worker = 1},
                 .run = {.name = "run",
                         .storage_path = argv[1],
                         .failure = {.max_failures = -1, .controller_failure_limit = -1},
                         .checkpoint = checkpoint}})
                .fit(Train{marks, std::stol(argv[2])});
        if (!rtrain::launch::ranks()) { // the driver
            std::cout << "{\"reports\": " << result.metrics_history.size()
                      << ", \"step\": " << result.metrics.at("step") << "}" << std::endl;
        }
    } catch (const std::exception& error) {
        std::cerr << "goodput_bench: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
