// SPDX-License-Identifier: Apache-2.0
// A run of some seconds, as a job of Slurm: slurm_test.py preempts it.
//
//   slurm_job <steps> <storage path>
#include "support/training.hpp"

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

int main(int argc, char** argv) {
    if (argc != 3) {
        return 2;
    }
    const int steps = std::atoi(argv[1]);
    rtrain::Trainer<> trainer(
        {.scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
         .run = {.name = "r", .storage_path = argv[2], .logging = {.to_file = true}}});
    const auto result = trainer.fit([=](auto& worker) {
        int step = 0;
        auto state = rtrain::State{}.add("step", step);
        worker.restore(state);
        if (worker.rank() == 0) {
            std::cout << "BEGIN at step " << step << " on " << worker.size() << " ranks"
                      << std::endl;
        }
        while (step < steps) {
            ++step;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            worker.report({{"step", step}}, state);
        }
    });
    std::cout << "RESULT " << result.metrics.at("step") << ' ' << result.metrics_history.size()
              << std::endl;
}
