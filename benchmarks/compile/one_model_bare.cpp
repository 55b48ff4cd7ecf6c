// SPDX-License-Identifier: Apache-2.0
// What docs/training-program.md does, on one process and without rtrain.
#include "mlp.hpp"

#include <torch/torch.h>

#include <iostream>

int main() {
    Mlp model;
    torch::optim::SGD optimizer(model->parameters(), 1e-2);
    auto data = torch::data::datasets::MNIST("data").map(torch::data::transforms::Stack<>());
    auto batches =
        torch::data::make_data_loader<torch::data::samplers::RandomSampler>(std::move(data), 32);
    for (int epoch = 0; epoch < 10; ++epoch) {
        double loss = 0;
        for (auto& batch : *batches) {
            optimizer.zero_grad();
            auto step_loss = torch::cross_entropy_loss(model(batch.data), batch.target);
            step_loss.backward();
            optimizer.step();
            loss = step_loss.item<double>();
        }
        torch::save(model, "model.pt");
        torch::save(optimizer, "optimizer.pt");
        std::cout << "loss " << loss << '\n';
    }
}
