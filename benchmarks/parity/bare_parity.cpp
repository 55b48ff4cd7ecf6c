// SPDX-License-Identifier: Apache-2.0
// The parity workload on libtorch alone: what one rank costs without rtrain.
//
//   ./bare_parity EPOCHS [DATA_DIRECTORY [RANK SIZE]]
//
// With RANK and SIZE it computes what that rank would, and averages nothing: SIZE of these at once
// are the ceiling for training on SIZE ranks.
#include "parity.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>

namespace {

void train(int epochs, const char* files, std::int64_t rank, std::int64_t size) {
    torch::set_num_threads(1);
    torch::manual_seed(0);
    parity::Mlp model;
    torch::optim::SGD optimizer(model->parameters(), parity::learning_rate);
    const parity::Data data = parity::load(files);
    const std::int64_t batch = parity::global_batch / size;
    double first_step = 0.0;

    for (int epoch = 0; epoch < epochs; ++epoch) {
        const auto start = parity::Clock::now();
        auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(epoch));
        const auto order = torch::randperm(parity::Data::rows, generator, torch::kLong)
                               .slice(0, rank, parity::Data::rows, size)
                               .contiguous();
        auto total = torch::zeros({});
        double steps = 0;
        for (std::int64_t row = 0; row < order.numel(); row += batch) {
            const auto indices = order.slice(0, row, std::min(row + batch, order.numel()));
            const auto image = data.image.index_select(0, indices);
            const auto label = data.label.index_select(0, indices);
            optimizer.zero_grad();
            auto loss = torch::cross_entropy_loss(model(image), label);
            loss.backward();
            optimizer.step();
            total += loss.detach();
            ++steps;
            if (first_step == 0.0) {
                first_step = parity::unix_time();
            }
        }
        const double loss = total.item<double>() / steps;
        parity::print_epoch(epoch, parity::seconds_since(start), loss);
    }
    parity::print_end(first_step, parity::pss_mb());
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 2 || argc == 4) {
        std::cerr << "usage: bare_parity EPOCHS [DATA_DIRECTORY [RANK SIZE]]" << std::endl;
        return EXIT_FAILURE;
    }
    try {
        train(std::atoi(argv[1]), argc > 2 ? argv[2] : parity::default_data,
              argc > 4 ? std::atoi(argv[3]) : 0, argc > 4 ? std::atoi(argv[4]) : 1);
    } catch (const std::exception& error) {
        std::cerr << "bare_parity: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
