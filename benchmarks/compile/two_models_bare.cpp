// SPDX-License-Identifier: Apache-2.0
// What two_models.cpp does, on one process and without rtrain.
#include <iostream>
#include <torch/torch.h>

struct MlpImpl : torch::nn::Module {
    torch::nn::Linear in = register_module("in", torch::nn::Linear(784, 512));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(512, 10));
    torch::Tensor forward(torch::Tensor image) { return out(torch::relu(in(image.flatten(1)))); }
};
TORCH_MODULE(Mlp);

struct EncoderImpl : torch::nn::Module {
    torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(1, 8, 3));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(8 * 26 * 26, 10));
    torch::Tensor forward(torch::Tensor image) { return out(torch::relu(conv(image)).flatten(1)); }
};
TORCH_MODULE(Encoder);

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
