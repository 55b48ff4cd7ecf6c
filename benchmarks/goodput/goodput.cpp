// SPDX-License-Identifier: Apache-2.0
// A training of two ranks and a fixed number of steps, whose ranks are killed meanwhile.
//
//   goodput_bench DIRECTORY STEPS MTBF_S       launches two ranks itself
//
// MTBF_S is the mean time between failures that it is told, by which it chooses its checkpoints; 0:
// it makes none. A step takes 50 ms, or longer where computing does: on a machine whose processors
// are shared, the pause stands for a device that computes meanwhile.
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

struct Train {
    const Marks& marks;
    long steps;

    void operator()(auto& worker) const {
        torch::manual_seed(0);
        auto model = worker.prepare(torch::nn::Sequential( // 10 million parameters: 114 MiB
            torch::nn::Linear(784, 2048), torch::nn::ReLU(), torch::nn::Linear(2048, 2048),
            torch::nn::ReLU(), torch::nn::Linear(2048, 2048), torch::nn::ReLU(),
            torch::nn::Linear(2048, 10)));
        auto optimizer = worker.prepare(torch::optim::Adam(model->parameters()));
        long step = 0;
        auto state =
            rtrain::State{}.add("model", model).add("optimizer", optimizer).add("step", step);
        worker.restore(state);
        marks.add(worker.rank(), "restored", step);
        while (step < steps) {
            const auto begin = std::chrono::steady_clock::now();
            optimizer.zero_grad();
            const auto image = torch::randn({8, 784});
            const auto label = torch::randint(10, {8}, torch::kLong);
            torch::cross_entropy_loss(model(image), label).backward();
            optimizer.step();
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
