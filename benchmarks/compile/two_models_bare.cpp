// SPDX-License-Identifier: Apache-2.0
// What two_models.cpp does, on one process and without rtrain.
#include "encoder.hpp"
#include "mlp.hpp"

#include <torch/torch.h>

#include <iostream>

int main() {
    Mlp model;
    torch::optim::SGD optimizer(model->parameters(), 1e-2);
    Encoder encoder;
    torch::optim::Adam adam(encoder->parameters(), 1e-3);
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
            adam.zero_grad();
            torch::mse_loss(encoder(batch.data), model(batch.data).detach()).backward();
            adam.step();
            loss = step_loss.item<double>();
        }
        torch::save(model, "model.pt");
        torch::save(optimizer, "optimizer.pt");
        torch::save(encoder, "encoder.pt");
        torch::save(adam, "adam.pt");
        std::cout << "loss " << loss << '\n';
    }
}
