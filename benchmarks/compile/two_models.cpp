// SPDX-License-Identifier: Apache-2.0
// Two models in one training function.
#include "encoder.hpp"
#include "mlp.hpp"

#include <rtrain/trainer.hpp>
#include <torch/torch.h>

#include <iostream>

struct TrainFashionMnist {
    void operator()(rtrain::Worker<>& worker, const rtrain::Config& config) const {
        auto model = worker.prepare(Mlp{}); // parameters equal on all ranks, gradients averaged
        torch::optim::SGD optimizer(model->parameters(), config.at("lr").to_number<double>());
        auto encoder = worker.prepare(Encoder{});
        torch::optim::Adam adam(encoder->parameters(), 1e-3);
        auto state = rtrain::State{}
                         .add("model", model)
                         .add("optimizer", optimizer)
                         .add("encoder", encoder)
                         .add("adam", adam);
        auto batches = worker.dataset_shard("train").batches({.size = 32, .shuffle = true});

        for (int epoch : worker.epochs(10, state)) { // starts where the last checkpoint ended
            double loss = 0;
            for (auto& batch : batches) {
                optimizer.zero_grad();
                auto step_loss = torch::cross_entropy_loss(model(batch["image"]), batch["label"]);
                step_loss.backward();
                optimizer.step();
                adam.zero_grad();
                torch::mse_loss(encoder(batch["image"]), model(batch["image"]).detach()).backward();
                adam.step();
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
