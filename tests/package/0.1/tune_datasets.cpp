// SPDX-License-Identifier: Apache-2.0
// Which data to learn from, and on how many ranks: a search over data sets and ScalingConfig.
//
//   ./tune_datasets                  Fashion-MNIST, four trials
//   ./tune_datasets DIRECTORY 3000   the same from elsewhere, with so many images to learn from
//
// Expected at the end: a line for each trial, and which was best.
#include <rtrain/data/random.hpp>
#include <rtrain/tuner.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>

namespace {

using rtrain::data::Split;

/// A linear classifier.
struct Classify {
    void operator()(auto& worker, const rtrain::Config& config) const {
        torch::manual_seed(0);
        auto model = worker.prepare(torch::nn::Linear(784, 10));
        torch::optim::SGD optimizer(model->parameters(),
                                    config.at("lr").template to_number<double>());
        auto state = rtrain::State{}.add("model", model).add("optimizer", optimizer);
        auto batches =
            worker.dataset_shard("train").batches({.size = 64 / worker.size(), .shuffle = true});
        for (const int epoch : worker.epochs(3, state)) {
            for (auto& batch : batches) {
                optimizer.zero_grad();
                const auto scores = model(batch["image"].flatten(1));
                torch::cross_entropy_loss(scores, batch["label"]).backward();
                optimizer.step();
            }
            worker.report({{"epoch", epoch},
                           {"ranks", worker.size()},
                           {"accuracy", accuracy_of(worker, model)}},
                          state);
        }
    }

    static double accuracy_of(auto& worker, auto& model) {
        const torch::NoGradGuard no_grad;
        std::int64_t right = 0;
        std::int64_t seen = 0;
        for (auto& batch : worker.dataset_shard("test").batches({.size = 500})) {
            const auto scores = model(batch["image"].flatten(1));
            right += scores.argmax(1).eq(batch["label"]).sum().template item<int>();
            seen += batch.size();
        }
        return static_cast<double>(worker.all_reduce(right)) /
               static_cast<double>(worker.all_reduce(seen));
    }
};

/// Half of the images, in each epoch others.
rtrain::data::Batch mirrored(rtrain::data::Batch batch, rtrain::data::Random& random) {
    const auto turn = torch::rand({batch.size(), 1, 1, 1}, random.generator()) < 0.5;
    batch["image"] = torch::where(turn, batch["image"].flip(3), batch["image"]);
    return batch;
}

void search(const std::filesystem::path& files, std::int64_t images) {
    namespace tune = rtrain::tune;
    const auto all = rtrain::data::fashion_mnist(files, Split::train);
    const auto plain = all.limit(std::min(images, all.size()));
    rtrain::Trainer<> trainer{{
        .config = {{"lr", 0.05}},
        .datasets = {{"train", plain}, {"test", rtrain::data::fashion_mnist(files, Split::test)}},
    }};
    rtrain::Tuner tuner{
        trainer, Classify{},
        rtrain::TunerOptions{
            .param_space = {{"datasets/train", tune::grid_search({"plain", "mirrored"})},
                            {"scaling/num_workers", tune::grid_search({1, 2})}},
            .tune = {.metric = "accuracy", .mode = "max", .max_concurrent_trials = 1},
            .run = {.name = "tune-datasets", .storage_path = "results"},
            .datasets = {{"plain", plain}, {"mirrored", plain.map_batches(mirrored)}},
        }};
    const rtrain::ResultGrid results = tuner.fit();
    const auto choice_of = [](const rtrain::TrialResult& trial) {
        return std::string(trial.config.at("datasets").at("train").as_string());
    };
    for (const rtrain::TrialResult& trial : results) {
        std::cout << choice_of(trial) << " on " << trial.metric("ranks") << " ranks: accuracy "
                  << trial.metric("accuracy") << '\n';
    }
    std::cout << "best: " << choice_of(results.get_best_result()) << std::endl;
}

} // namespace

int main(int argc, char** argv) {
    try {
        search(argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist",
               argc > 2 ? std::atoi(argv[2]) : 60000);
    } catch (const std::exception& error) {
        std::cerr << "tune_datasets: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
