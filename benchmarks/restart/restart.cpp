// SPDX-License-Identifier: Apache-2.0
// A small training that goes on until it is ended, and is killed meanwhile; peers.py is its Python
// twin.
//
//   restart_bench DIRECTORY       launches two ranks itself
//
// Its marks: "main": the process has come to main(), "training": to the training function, "step":
// a step is done.
#include "../marks.hpp"

#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <thread>

namespace {

constexpr int ranks = 2;
constexpr long checkpoint_every = 20; // steps
constexpr std::chrono::milliseconds pause_of_step{10};

struct Train {
    const Marks& marks;

    void operator()(auto& worker) const {
        marks.add(worker.rank(), "training");
        torch::manual_seed(0);
        auto model = worker.prepare(torch::nn::Sequential(
            torch::nn::Linear(784, 512), torch::nn::ReLU(), torch::nn::Linear(512, 10)));
        torch::optim::Adam optimizer(model->parameters());
        long step = 0;
        auto state =
            rtrain::State{}.add("model", model).add("optimizer", optimizer).add("step", step);
        worker.restore(state);
        for (;;) {
            optimizer.zero_grad();
            const auto image = torch::randn({32, 784});
            const auto label = torch::randint(10, {32}, torch::kLong);
            torch::cross_entropy_loss(model(image), label).backward();
            optimizer.step();
            marks.add(worker.rank(), "step", ++step);
            std::this_thread::sleep_for(pause_of_step);
            if (step % checkpoint_every == 0) {
                worker.report({{"step", step}}, state);
            }
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: restart_bench DIRECTORY\n";
        return 2;
    }
    const Marks marks(argv[1]);
    marks.add(rtrain::launch::env_int("OMPI_COMM_WORLD_RANK").value_or(-1), "main");
    try {
        rtrain::Trainer<>({.scaling = {.num_workers = ranks, .threads_per_worker = 1},
                           .run = {.name = "run",
                                   .storage_path = argv[1],
                                   .failure = {.max_failures = -1},
                                   .checkpoint = {.num_to_keep = 2}}})
            .fit(Train{marks});
    } catch (const std::exception& error) {
        std::cerr << "restart_bench: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
