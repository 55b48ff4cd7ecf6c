// SPDX-License-Identifier: Apache-2.0
// The README's program.
#include <iostream>
#include <rtrain/trainer.hpp>
#include <torch/torch.h>

struct MlpImpl : torch::nn::Module {
    torch::nn::Linear in = register_module("in", torch::nn::Linear(784, 512));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(512, 10));
    torch::Tensor forward(torch::Tensor image) { return out(torch::relu(in(image.flatten(1)))); }
};
TORCH_MODULE(Mlp);

struct TrainFashionMnist {
    void operator()(rtrain::Worker<>& worker, const rtrain::Config& config) const {
        auto model = worker.prepare(Mlp{}); // parameters equal on all ranks, gradients averaged
        torch::optim::SGD optimizer(model->parameters(), config.at("lr").to_number<double>());
        auto state = rtrain::State{}.add("model", model).add("optimizer", optimizer);
        auto batches = worker.dataset_shard("train").batches({.size = 32, .shuffle = true});

        for (int epoch : worker.epochs(10, state)) { // starts where the last checkpoint ended
            double loss = 0;
            for (auto& batch : batches) {
                optimizer.zero_grad();
                auto step_loss = torch::cross_entropy_loss(model(batch["image"]), batch["label"]);
                step_loss.backward();
                optimizer.step();
                loss = step_loss.item<double>();
            }
            worker.report({{"epoch", epoch}, {"loss", loss}}, state); // metrics and a checkpoint
        }
    }
};

int main() {
    rtrain::Trainer<> trainer{{
        .config = {{"lr", 1e-2}},
        .scaling = {.num_workers = 2},
        .run = {.name = "fashion-mnist",
                .storage_path = "results",
                .checkpoint = {.num_to_keep = 2}},
        .datasets = {{"train", rtrain::data::fashion_mnist("/usr/share/datasets/fashion-mnist",
                                                           rtrain::data::Split::train)}},
    }};
    rtrain::Result result = trainer.fit(TrainFashionMnist{});
    std::cout << "loss " << result.metric("loss") << " in " << result.path << '\n';
}
