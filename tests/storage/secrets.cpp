// SPDX-License-Identifier: Apache-2.0
// A run whose environment is full of secrets; secrets_test.py looks where they turn up.
//
//   storage_secrets KIND        started alone; SECRETS_STORAGE is the storage path
//
// KIND is what happens on rank 1 behind its second report: ok (nothing), throw, kill. Before it,
// all ranks wait, while secrets_test.py looks around, for the file that SECRETS_GO names.
#include <rtrain/storage/cloud/arrow.hpp>
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr ? value : "";
}

void wait_for_the_test() {
    constexpr int tenths = 300;
    for (int i = 0; i < tenths && !std::filesystem::exists(variable("SECRETS_GO")); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}

} // namespace

int main(int argc, char** argv) {
    const std::string kind = argc == 2 ? argv[1] : "";
    if (kind != "ok" && kind != "throw" && kind != "kill") {
        std::cerr << "usage: storage_secrets ok|throw|kill\n";
        return 2;
    }
    using Trainer =
        rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Sharded, rtrain::checkpoint::Sync>;
    try {
        Trainer trainer{{
            .config = {{"learning_rate", 0.1}},
            .scaling = {.num_workers = 2, .threads_per_worker = 1},
            .run = {.name = "run",
                    .storage_path = variable("SECRETS_STORAGE"),
                    .failure = {.max_failures = 0},
                    .transfer = {.attempts = 2,
                                 .first_backoff_s = 0.02,
                                 .request_timeout_s = 2,
                                 .deadline_s = 10}},
        }};
        const auto result = trainer.fit([&](auto& worker) {
            auto weights = torch::ones({100});
            auto state = rtrain::State{}.add("weights", weights);
            worker.report({{"step", 1}}, state);
            worker.report({{"step", 2}}, state);
            if (worker.rank() == 0) {
                std::cout << "HALFWAY" << std::endl;
            }
            wait_for_the_test();
            if (worker.rank() == 1 && kind == "throw") {
                throw std::runtime_error("rank 1 gives up");
            }
            if (worker.rank() == 1 && kind == "kill") {
                std::raise(SIGKILL);
            }
            worker.report({{"step", 3}}, state);
        });
        std::cout << "RESULT " << result.metrics_history.size() << std::endl;
    } catch (const rtrain::Error& error) {
        std::cout << "ERROR " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
