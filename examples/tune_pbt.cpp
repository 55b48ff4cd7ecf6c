// SPDX-License-Identifier: Apache-2.0
// Population based training of a convolutional network: at each epoch, trials that are behind take
// over the weights of those ahead, and go on from there with other learning rates.
//
//   ./tune_pbt                         Fashion-MNIST
//   ./tune_pbt cifar-10-batches-bin    CIFAR-10 as distributed in binary, or what has its format
//   ./tune_pbt write images 12000      writes such: images of Fashion-MNIST, in three colours
//
// After the directory: trials, epochs, images to learn from, at most. Run again, it resumes where
// it stopped.
#include <rtrain/tune/schedule/pbt.hpp>
#include <rtrain/tuner.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace {

using rtrain::data::Split;
namespace fs = std::filesystem;
namespace tune = rtrain::tune;

/// A file of CIFAR-10: for each image a byte for its class, then one for each pixel of 32 x 32, red
/// ones first, then green and blue.
namespace cifar {

constexpr std::int64_t side = 32;
constexpr std::int64_t bytes_of_image = 1 + 3 * side * side;

std::vector<fs::path> files(const fs::path& directory, Split split) {
    if (split == Split::test) {
        return {directory / "test_batch.bin"};
    }
    std::vector<fs::path> files;
    for (int number = 1; number <= 5; ++number) {
        if (auto file = directory / ("data_batch_" + std::to_string(number) + ".bin");
            fs::exists(file)) {
            files.push_back(std::move(file));
        }
    }
    return files;
}

rtrain::data::Dataset read(const fs::path& directory, Split split, std::int64_t most) {
    std::vector<torch::Tensor> parts;
    for (const fs::path& file : files(directory, split)) {
        const auto size = static_cast<std::int64_t>(fs::file_size(file));
        const auto bytes = torch::from_file(file.string(), /*shared=*/false, size, torch::kByte);
        parts.push_back(bytes.view({-1, bytes_of_image}));
    }
    const auto rows = torch::cat(parts).slice(0, 0, most);
    return rtrain::data::from_tensors(
        {{"image", rows.slice(1, 1).reshape({-1, 3, side, side}).to(torch::kFloat) / 255},
         {"label", rows.select(1, 0).to(torch::kLong)}});
}

void write(const fs::path& file, const rtrain::data::Batch& images) {
    const auto coloured = torch::constant_pad_nd(images["image"], {2, 2, 2, 2})
                              .expand({-1, 3, side, side})
                              .reshape({images.size(), -1});
    const auto rows = torch::cat({images["label"].unsqueeze(1).to(torch::kByte),
                                  (coloured * 255).round().to(torch::kByte)},
                                 1)
                          .contiguous();
    std::ofstream(file, std::ios::binary)
        .write(static_cast<const char*>(rows.data_ptr()), rows.numel());
}

} // namespace cifar

/// Grey images or coloured ones, 28 or 32 pixels wide.
struct NetImpl : torch::nn::Module {
    explicit NetImpl(std::int64_t channels)
        : in(register_module("in", torch::nn::Conv2d(channels, 16, 5))),
          hidden(register_module("hidden", torch::nn::Conv2d(16, 32, 5))),
          out(register_module("out", torch::nn::Linear(32 * 4 * 4, 10))) {}

    torch::Tensor forward(const torch::Tensor& image) {
        const auto x = torch::max_pool2d(torch::relu(in(image)), 2);
        return out(torch::adaptive_avg_pool2d(torch::relu(hidden(x)), {4, 4}).flatten(1));
    }

    torch::nn::Conv2d in;
    torch::nn::Conv2d hidden;
    torch::nn::Linear out;
};
TORCH_MODULE(Net);

struct TrainNet {
    void operator()(auto& worker, const rtrain::Config& config) const {
        torch::manual_seed(0);
        const auto number = [&](const char* name) {
            return config.at(name).template to_number<double>();
        };
        auto model = worker.prepare(Net(config.at("channels").template to_number<int>()));
        torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(number("lr")));
        auto state = rtrain::State{}.add("model", model).add("optimizer", optimizer);
        auto batches = worker.dataset_shard("train").batches({.size = 32, .shuffle = true});
        for (const int epoch :
             worker.epochs(config.at("epochs").template to_number<int>(), state)) {
            for (auto& group : optimizer.param_groups()) { // the state has the donor's
                auto& options = static_cast<torch::optim::SGDOptions&>(group.options());
                options.lr(number("lr")).momentum(number("momentum"));
            }
            for (auto& batch : batches) {
                optimizer.zero_grad();
                torch::cross_entropy_loss(model(batch["image"]), batch["label"]).backward();
                optimizer.step();
            }
            worker.report({{"epoch", epoch}, {"accuracy", accuracy_of(worker, model)}}, state);
        }
    }

    static double accuracy_of(auto& worker, auto& model) {
        const torch::NoGradGuard no_grad;
        std::int64_t right = 0;
        std::int64_t seen = 0;
        for (auto& batch : worker.dataset_shard("test").batches({.size = 500})) {
            right += model(batch["image"]).argmax(1).eq(batch["label"]).sum().template item<int>();
            seen += batch.size();
        }
        return static_cast<double>(worker.all_reduce(right)) /
               static_cast<double>(worker.all_reduce(seen));
    }
};

void search(const fs::path& files, int trials, int epochs, std::int64_t images) {
    const bool coloured = fs::exists(files / "test_batch.bin");
    const auto part = [&](Split split, std::int64_t most) {
        if (coloured) {
            return cifar::read(files, split, most);
        }
        const auto all = rtrain::data::fashion_mnist(files, split);
        return all.limit(std::min(most, all.size()));
    };
    rtrain::Trainer<> trainer{{
        .config = {{"channels", coloured ? 3 : 1}, {"epochs", epochs}},
        .scaling = {.num_workers = 1},
        .datasets = {{"train", part(Split::train, images)},
                     {"test", part(Split::test, images / 5)}},
    }};
    const tune::Space space{{"lr", tune::loguniform(1e-3, 0.3)},
                            {"momentum", tune::uniform(0.5, 0.95)}};
    rtrain::Tuner tuner{trainer, TrainNet{},
                        rtrain::TunerOptions{
                            .param_space = space,
                            .tune = {.metric = "accuracy",
                                     .mode = "max",
                                     .scheduler = tune::Pbt({.time_attr = "training_iteration",
                                                             .perturbation_interval = 1,
                                                             .hyperparam_mutations = space}),
                                     .num_samples = trials},
                            .run = {.name = "tune-pbt",
                                    .storage_path = "results",
                                    .checkpoint = {.num_to_keep = 2}},
                        }};
    const rtrain::ResultGrid results = tuner.fit();
    const auto& best = results.get_best_result();
    std::cout << results.num_terminated() << " trials, best test accuracy "
              << best.metric("accuracy") << " with lr " << best.config.at("lr") << " and momentum "
              << best.config.at("momentum") << std::endl;
}

} // namespace

int main(int argc, char** argv) {
    const auto number = [&](int at, int otherwise) {
        return argc > at ? std::atoi(argv[at]) : otherwise;
    };
    try {
        const fs::path fashion_mnist = "/usr/share/datasets/fashion-mnist";
        if (argc > 2 && std::string(argv[1]) == "write") {
            const auto images = [&](Split split, int most) {
                return rtrain::data::fashion_mnist(fashion_mnist, split).take(most);
            };
            fs::create_directories(argv[2]);
            const fs::path to = argv[2];
            cifar::write(to / "data_batch_1.bin", images(Split::train, number(3, 10000)));
            cifar::write(to / "test_batch.bin", images(Split::test, number(3, 10000) / 5));
        } else {
            search(argc > 1 ? argv[1] : fashion_mnist, number(2, 4), number(3, 10),
                   number(4, 60000));
        }
    } catch (const std::exception& error) {
        std::cerr << "tune_pbt: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
