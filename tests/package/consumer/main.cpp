// SPDX-License-Identifier: Apache-2.0
// Expected: "weight 2.0" from two ranks.
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <cstdio>

rtrain::TrainerOptions options(const char* storage);

int main(int, char** argv) {
    const auto result = rtrain::Trainer<>(options(argv[1])).fit([](auto& worker) {
        auto model = worker.prepare(torch::nn::Linear(1, 1));
        torch::optim::SGD optimizer(model->parameters(), 0.3);
        for (int epoch = 0; epoch < 50; ++epoch) {
            for (auto& batch : worker.dataset_shard("train").batches({.size = 10})) {
                optimizer.zero_grad();
                torch::mse_loss(model(batch["x"]), batch["y"]).backward();
                optimizer.step();
            }
        }
        worker.report({{"weight", model->weight.template item<double>()}});
    });
    std::printf("weight %.1f\n", result.metrics.at("weight").to_number<double>());
}
