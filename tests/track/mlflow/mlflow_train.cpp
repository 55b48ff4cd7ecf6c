// SPDX-License-Identifier: Apache-2.0
// Trains on two ranks with an MLflow tracker, and is killed behind some reports;
// mlflow_train_test.py runs it.
//
//   mlflow_train <storage path>
#include "support/training.hpp"

#include <rtrain/track/mlflow/mlflow.hpp>

#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>

int main(int argc, char** argv) {
    if (argc != 2) {
        return 2;
    }
    const std::filesystem::path storage = argv[1];
    rtrain::Trainer<rtrain::backend::Mpi> trainer(
        {.config = {{"lr", 0.1}},
         .scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
         .run = {.name = "r",
                 .storage_path = storage,
                 .failure = {.max_failures = -1, .backoff_s = 0},
                 .trackers = {rtrain::track::MlFlow{}}}});
    const auto result = trainer.fit([&](auto& worker) {
        int step = 0;
        auto state = rtrain::State{}.add("step", step);
        worker.restore(state);
        while (step < 12) {
            ++step;
            // Another one in each attempt.
            const auto number = std::chrono::system_clock::now().time_since_epoch().count() % 1000;
            const rtrain::Config metrics{{"loss", number}, {"step", step}};
            if (step % 3 == 0) {
                worker.report(metrics, state);
            } else {
                worker.report(metrics);
            }
            const auto mark = storage / ("killed-" + std::to_string(step));
            if (worker.rank() == 0 && (step == 5 || step == 9 || step == 10) &&
                !std::filesystem::exists(mark)) {
                test::write(mark, "");
                std::this_thread::sleep_for(std::chrono::milliseconds(500)); // for the tracker
                std::raise(SIGKILL);
            }
        }
    });
    std::cout << "RESULT " << result.metrics_history.size() << std::endl;
}
