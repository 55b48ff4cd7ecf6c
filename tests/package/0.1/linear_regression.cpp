// SPDX-License-Identifier: Apache-2.0
// The smallest training program: fits y = 3x - 2. Expected: "weight 3.0, bias -2.0" within 0.01.
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <cstdio>

int main() {
    torch::manual_seed(0);
    const auto x = torch::linspace(-1, 1, 1000).unsqueeze(1);
    rtrain::Trainer<> trainer{{
        .config = {{"lr", 0.2}},
        .scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
        .run = {.name = "linear-regression", .storage_path = "results"},
        .datasets = {{"train", rtrain::data::from_tensors({{"x", x}, {"y", 3 * x - 2}})}},
    }};
    const auto result = trainer.fit([](auto& worker, const rtrain::Config& config) {
        auto model = worker.prepare(torch::nn::Linear(1, 1));
        torch::optim::SGD optimizer(model->parameters(), config.at("lr").to_number<double>());
        auto state = rtrain::State{}.add("model", model).add("optimizer", optimizer);
        auto batches = worker.dataset_shard("train").batches({.size = 50, .shuffle = true});
        for (const int epoch : worker.epochs(20, state)) {
            double loss = 0;
            for (auto& batch : batches) {
                optimizer.zero_grad();
                auto error = torch::mse_loss(model(batch["x"]), batch["y"]);
                error.backward();
                optimizer.step();
                loss = error.template item<double>();
            }
            worker.report({{"epoch", epoch},
                           {"loss", loss},
                           {"weight", model->weight.template item<double>()},
                           {"bias", model->bias.template item<double>()}},
                          state);
        }
    });
    std::printf("weight %.3f, bias %.3f\n", result.metric("weight"), result.metric("bias"));
}
