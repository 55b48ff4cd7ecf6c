// SPDX-License-Identifier: Apache-2.0
// Active learning: which images are worth a label? main() trains, asks the model for the images
// that it is least certain of, adds them to the training data, and trains on.
//
//   ./active_learning                  Fashion-MNIST, five rounds
//   ./active_learning DIRECTORY 2      the same from elsewhere, with so many rounds
//
// Expected at the end: a test accuracy of 70 % or more with 600 labels.
#include <rtrain/creators.hpp>

#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>

namespace {

using rtrain::Config;
using rtrain::data::Dataset;

constexpr std::int64_t pool_size = 6000;
constexpr std::int64_t labels_per_round = 100;

/// Classifies images of 28 x 28 pixels.
torch::nn::Sequential make_model() {
    torch::manual_seed(0);
    return torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(784, 128),
                                 torch::nn::ReLU(), torch::nn::Linear(128, 10));
}

Dataset rows_of(const Dataset& all, const torch::Tensor& rows) {
    const auto batch = all.rows(rows);
    return rtrain::data::from_tensors({{"image", batch["image"]}, {"label", batch["label"]}});
}

/// The rows of the pool whose best two classes are closest, without those that have a label.
torch::Tensor least_certain(torch::nn::Sequential model, const torch::Tensor& images,
                            const torch::Tensor& has_label) {
    const torch::NoGradGuard no_grad;
    const auto best = std::get<0>(model->forward(images).softmax(1).topk(2, 1));
    auto margin = best.select(1, 0) - best.select(1, 1);
    margin.masked_fill_(has_label, 2.0);
    return std::get<1>(margin.topk(labels_per_round, 0, /*largest=*/false));
}

} // namespace

int main(int argc, char** argv) {
    const std::filesystem::path files = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
    const int rounds = argc > 2 ? std::stoi(argv[2]) : 5;
    const auto pool =
        rtrain::data::fashion_mnist(files, rtrain::data::Split::train).limit(pool_size);
    const auto test = rtrain::data::fashion_mnist(files, rtrain::data::Split::test).limit(1000);

    rtrain::CreatorTrainer trainer{rtrain::CreatorOptions{
        .model_creator = [](const Config&) { return make_model(); },
        .data_creator =
            [&](const Config&) {
                const auto first = torch::arange(labels_per_round);
                return std::pair(rows_of(pool, first), rows_of(test, torch::arange(1000)));
            },
        .optimizer_creator =
            [](auto& model, const Config&) {
                return std::pair(torch::nn::CrossEntropyLoss(),
                                 torch::optim::Adam(model->parameters(), 1e-3));
            },
        .num_replicas = 2,
        .batch_size = 50,
        .run = {.name = "active_learning",
                .storage_path = "results",
                .failure = {.max_failures = 3}}}};

    const auto images = pool.rows(torch::arange(pool_size))["image"];
    auto has_label = torch::zeros({pool_size}, torch::kBool);
    has_label.slice(0, 0, labels_per_round).fill_(true);
    for (int round = 0; round <= rounds; ++round) {
        (void)trainer.train({.epochs = 10});
        std::cout << has_label.sum().item<std::int64_t>() << " labels: test accuracy "
                  << trainer.validate().mean_accuracy.value() << std::endl;
        has_label.index_fill_(0, least_certain(trainer.get_model(), images, has_label), true);
        trainer.set_data(rows_of(pool, has_label.nonzero().flatten()),
                         rows_of(test, torch::arange(1000)));
    }
}
