// SPDX-License-Identifier: Apache-2.0
// The parity workload as a user of rtrain writes it.
//
//   mpirun -n 2 ./rtrain_parity --epochs 5 --storage FRESH_DIRECTORY    (parity.hpp has all
//   options)
//
// Started alone it launches one rank itself.
#include "parity.hpp"

#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <utility>

namespace {

struct TrainParity {
    parity::Options options;

    void operator()(auto& worker) const {
        torch::manual_seed(0);
        auto model = worker.prepare(parity::Mlp(options.hidden));
        parity::with_optimizer(options.optimizer, model->parameters(), [&](auto optimizer) {
            if (options.fused == 0) {
                train(worker, model, optimizer);
            } else if constexpr (requires { worker.prepare(std::move(optimizer)); }) {
                auto fused = worker.prepare(std::move(optimizer));
                train(worker, model, fused);
            } else {
                throw std::runtime_error("prepare(optimizer) is not there");
            }
        });
    }

    void train(auto& worker, auto& model, auto& optimizer) const {
        auto state = rtrain::State{}.add("model", model).add("optimizer", optimizer);
        auto batches = worker.dataset_shard("train").batches(
            {.size = parity::global_batch / worker.size(), .shuffle = true});
        double first_step = 0.0;

        for (const int epoch : worker.epochs(options.epochs, state)) {
            worker.barrier();
            const auto start = parity::Clock::now();
            auto total = torch::zeros({});
            std::int64_t steps = 0;
            for (auto& batch : batches) {
                optimizer.zero_grad();
                const auto image = batch["image"].sub(0.5).div_(0.5); // as its peers' data are
                auto loss = torch::cross_entropy_loss(model(image), batch["label"]);
                loss.backward();
                optimizer.step();
                total += loss.detach();
                if (first_step == 0.0) {
                    first_step = parity::unix_time();
                }
                if (++steps == options.steps) {
                    break;
                }
            }
            const double mine = total.item<double>() / static_cast<double>(steps);
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
    try {
        const parity::Options options(argc, argv);
        rtrain::Trainer<> trainer{{
            .scaling = {.num_workers = rtrain::launch::ranks().value_or(1),
                        .threads_per_worker = 1},
            .run = {.storage_path = options.storage,
                    .console = {.verbose = static_cast<int>(options.verbose)}},
            .datasets = {{"train",
                          rtrain::data::fashion_mnist(options.data, rtrain::data::Split::train)}},
        }};
        (void)trainer.fit(TrainParity{options});
    } catch (const std::exception& error) {
        std::cerr << "rtrain_parity: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
