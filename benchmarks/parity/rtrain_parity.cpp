// SPDX-License-Identifier: Apache-2.0
// The parity workload as a user of rtrain writes it.
//
//   mpirun -n 2 ./rtrain_parity EPOCHS STORAGE_DIRECTORY [DATA_DIRECTORY]
//
// Started alone it launches one rank itself. STORAGE_DIRECTORY should be fresh.
#include "parity.hpp"

#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <utility>

namespace {

struct TrainParity {
    void operator()(auto& worker, const rtrain::Config& config) const {
        torch::manual_seed(0);
        auto model = worker.prepare(parity::Mlp{});
        torch::optim::SGD optimizer(model->parameters(), parity::learning_rate);
        auto state = rtrain::State{}.add("model", model).add("optimizer", optimizer);
        auto batches = worker.dataset_shard("train").batches(
            {.size = parity::global_batch / worker.size(), .shuffle = true});
        const auto steps = static_cast<double>(batches.size());
        double first_step = 0.0;

        for (const int epoch : worker.epochs(config.at("epochs").to_number<int>(), state)) {
            worker.barrier();
            const auto start = parity::Clock::now();
            auto total = torch::zeros({});
            for (auto& batch : batches) {
                optimizer.zero_grad();
                auto loss = torch::cross_entropy_loss(model(batch["image"]), batch["label"]);
                loss.backward();
                optimizer.step();
                total += loss.detach();
                if (first_step == 0.0) {
                    first_step = parity::unix_time();
                }
            }
            const double mine = total.item<double>() / steps;
            const double seconds =
                worker.all_reduce(parity::seconds_since(start), rtrain::ReduceOp::max);
            const double loss = worker.all_reduce(mine, rtrain::ReduceOp::mean);
            worker.report({{"loss", loss}});
            if (worker.rank() == 0) {
                parity::print_epoch(epoch, seconds, loss);
            }
        }
        const double pss = worker.all_reduce(parity::pss_mb());
        if (worker.rank() == 0) {
            parity::print_end(first_step, pss);
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::cerr << "usage: rtrain_parity EPOCHS STORAGE_DIRECTORY [DATA_DIRECTORY]" << std::endl;
        return EXIT_FAILURE;
    }
    const char* const files = argc > 3 ? argv[3] : parity::default_data;
    try {
        rtrain::Trainer<> trainer{{
            .config = {{"epochs", std::atoi(argv[1])}},
            .scaling = {.num_workers = rtrain::launch::ranks().value_or(1),
                        .threads_per_worker = 1},
            .run = {.storage_path = argv[2]},
            // Lazy: a driver, which only launches, reads nothing.
            .datasets = {{"train", rtrain::data::lazy([files] {
                              auto [image, label] = parity::load(files);
                              return rtrain::data::from_tensors(
                                  {{"image", std::move(image)}, {"label", std::move(label)}});
                          })}},
        }};
        (void)trainer.fit(TrainParity{});
    } catch (const std::exception& error) {
        std::cerr << "rtrain_parity: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
