// SPDX-License-Identifier: Apache-2.0
// The parity workload on libtorch alone: what one rank costs without rtrain.
//
//   ./bare_parity --epochs 5 [--rank 0 --size 2]      (parity.hpp has all options)
//
// With rank and size it computes what that rank would, and averages nothing: so many of these at
// once are the ceiling for training on SIZE ranks.
#include "parity.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <utility>

namespace {

/// Prints an epoch's line for each, and the last line.
void train(const parity::Options& options, parity::Mlp& model, auto optimizer) {
    const parity::Data data = parity::load(options.data);
    const std::int64_t batch = parity::global_batch / options.size;
    double first_step = 0.0;

    for (int epoch = 0; epoch < options.epochs; ++epoch) {
        const auto start = parity::Clock::now();
        auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(epoch));
        const auto order = torch::randperm(parity::Data::rows, generator, torch::kLong)
                               .slice(0, options.rank, parity::Data::rows, options.size)
                               .contiguous();
        auto total = torch::zeros({});
        std::int64_t steps = 0;
        for (std::int64_t row = 0; row < order.numel(); row += batch) {
            const auto indices = order.slice(0, row, std::min(row + batch, order.numel()));
            const auto image = data.image.index_select(0, indices);
            const auto label = data.label.index_select(0, indices);
            optimizer.zero_grad();
            auto loss = torch::cross_entropy_loss(model(image), label);
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
        const double loss = total.item<double>() / static_cast<double>(steps);
        parity::print_epoch(epoch, parity::seconds_since(start), loss);
    }
    parity::print_end(first_step, parity::pss_mb());
}

} // namespace

int main(int argc, char** argv) {
    try {
        const parity::Options options(argc, argv);
        torch::set_num_threads(1);
        torch::manual_seed(0);
        parity::Mlp model(options.hidden);
        parity::with_optimizer(options.optimizer, model->parameters(), [&](auto optimizer) {
            train(options, model, std::move(optimizer));
        });
    } catch (const std::exception& error) {
        std::cerr << "bare_parity: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
