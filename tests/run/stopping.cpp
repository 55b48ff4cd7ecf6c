// SPDX-License-Identifier: Apache-2.0
// A program whose run RunConfig::stop ends, as its ranks are killed; stopping_test.cpp runs it.
//
//   stopping <steps behind which a rank is killed, with commas, or "-"> <storage path>
#include "support/training.hpp"

#include <csignal>
#include <iostream>
#include <sstream>

namespace {

struct Alarm {
    void after_exception(const rtrain::track::RunInfo& run,
                         const rtrain::track::Failures& failures) const {
        for (const auto& [rank, what] : failures) {
            std::cout << "TOLD " << run.name << " rank " << rank << ": " << what << std::endl;
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        return 2;
    }
    const std::filesystem::path storage = argv[2];
    const std::string kills = std::string(",") + argv[1] + ",";
    rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Sharded, rtrain::checkpoint::Async> trainer(
        {.scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
         .run = {.name = "r",
                 .storage_path = storage,
                 .failure = {.max_failures = -1, .backoff_s = 0},
                 .callbacks = {Alarm{}},
                 .stop = rtrain::stop::EarlyStopping{.metric = "loss", .patience = 3}},
         .datasets = {{"train", test::fashion_mnist(4 * 12)}}});
    const auto result = trainer.fit([&](auto& worker) {
        torch::manual_seed(3);
        auto model = worker.prepare(test::Net{});
        torch::optim::SGD optimizer(model->parameters(), 0.1);
        int steps = 0;
        auto state = rtrain::State{}.add("model", model).add("steps", steps);
        auto batches = worker.dataset_shard("train").batches({.size = 12 / worker.size()});
        for ([[maybe_unused]] const int epoch : worker.epochs(10, state)) {
            for (auto& batch : batches) {
                optimizer.zero_grad();
                torch::cross_entropy_loss(model(batch["image"]), batch["label"]).backward();
                optimizer.step();
                ++steps;
                // Falls for 7 reports; what rises on other ranks does not count.
                const int loss = worker.rank() == 0 ? std::max(10 - steps, 3) : steps;
                worker.report({{"loss", loss}, {"steps", steps}}, state);
                const bool is_victim = worker.rank() == steps % worker.size();
                const auto mark = storage / ("killed-" + std::to_string(steps));
                if (is_victim && kills.find("," + std::to_string(steps) + ",") != kills.npos &&
                    !std::filesystem::exists(mark)) {
                    test::write(mark, "");
                    std::raise(SIGKILL);
                }
            }
        }
        if (worker.rank() == 0) {
            double sum = 0;
            for (const auto& parameter : model->parameters()) {
                sum += parameter.sum().template item<double>();
            }
            std::printf("WEIGHTS %d %a\n", steps, sum);
        }
    });
    std::cout << "RESULT " << result.metrics.at("steps") << ' ' << result.metrics_history.size()
              << ' ' << result.stop_reason << std::endl;
}
