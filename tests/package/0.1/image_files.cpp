// SPDX-License-Identifier: Apache-2.0
// A convolutional network on image files: Fashion-MNIST, each image a PNG in the directory of its
// class.
//
//   ./image_files write images             writes them: images/train/3/00007.png; all 70,000
//   ./image_files images                   two ranks on this machine
//
// Expected at the end: test accuracy of 88 % or more.
#include <rtrain/data/images.hpp>
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

#include <png.h>

namespace {

using rtrain::data::Split;

struct NetImpl : torch::nn::Module {
    torch::nn::Conv2d in = register_module("in", torch::nn::Conv2d(1, 16, 5));
    torch::nn::Conv2d hidden = register_module("hidden", torch::nn::Conv2d(16, 32, 5));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(512, 10));

    /// `image` has bytes.
    torch::Tensor forward(const torch::Tensor& image) {
        auto x = torch::max_pool2d(torch::relu(in(image.to(torch::kFloat) / 255)), 2);
        x = torch::max_pool2d(torch::relu(hidden(x)), 2);
        return out(x.flatten(1));
    }
};
TORCH_MODULE(Net);

struct TrainImageFiles {
    void operator()(rtrain::Worker<>& worker, const rtrain::Config& config) const {
        torch::manual_seed(0);
        auto model = worker.prepare(Net{});
        torch::optim::Adam optimizer(model->parameters(), config.at("lr").to_number<double>());
        auto state = rtrain::State{}.add("model", model).add("optimizer", optimizer);
        auto batches = worker.dataset_shard("train").batches(
            {.size = 32, .shuffle = true, .threads = 1}); // decoded while the last one is learned
        for (const int epoch : worker.epochs(config.at("epochs").to_number<int>(), state)) {
            for (auto& batch : batches) {
                optimizer.zero_grad();
                auto loss = torch::cross_entropy_loss(model(batch["image"]), batch["label"]);
                loss.backward();
                optimizer.step();
            }
            worker.report({{"epoch", epoch}, {"accuracy", accuracy_of(worker, model)}}, state);
        }
    }

    static double accuracy_of(rtrain::Worker<>& worker, auto& model) {
        const torch::NoGradGuard no_grad;
        std::int64_t right = 0;
        std::int64_t seen = 0;
        for (auto& batch : worker.dataset_shard("test").batches({.size = 500, .threads = 1})) {
            right += model(batch["image"]).argmax(1).eq(batch["label"]).sum().template item<int>();
            seen += batch.size();
        }
        return static_cast<double>(worker.all_reduce(right)) /
               static_cast<double>(worker.all_reduce(seen));
    }
};

/// The first images of a part of Fashion-MNIST, as files.
void write(const std::filesystem::path& directory, Split split, std::int64_t most) {
    const auto images = rtrain::data::fashion_mnist("/usr/share/datasets/fashion-mnist", split);
    const auto all = images.take(std::min(most, images.size()));
    const auto pixels = (all["image"] * 255).round().to(torch::kByte);
    for (std::int64_t row = 0; row < all.size(); ++row) {
        const auto of_class = directory / std::to_string(all["label"][row].item<int>());
        std::ostringstream name;
        name << std::setw(5) << std::setfill('0') << row << ".png";
        std::filesystem::create_directories(of_class);
        png_image image = {};
        image.version = PNG_IMAGE_VERSION;
        image.width = image.height = 28;
        image.format = PNG_FORMAT_GRAY;
        if (png_image_write_to_file(&image, (of_class / name.str()).c_str(), 0,
                                    pixels[row].data_ptr(), 0, nullptr) == 0) {
            throw std::runtime_error(image.message);
        }
    }
}

void train(const std::filesystem::path& images, int epochs) {
    const rtrain::data::ImageOptions grey{.mode = rtrain::data::ImageMode::grey};
    rtrain::Trainer<> trainer{{
        .config = {{"lr", 2e-3}, {"epochs", epochs}},
        .scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
        .run = {.name = "image-files", .storage_path = "results"},
        .datasets = {{"train", rtrain::data::read_images(images / "train", grey)},
                     {"test", rtrain::data::read_images(images / "test", grey)}},
    }};
    std::cout << "test accuracy " << trainer.fit(TrainImageFiles{}).metric("accuracy") << std::endl;
}

} // namespace

int main(int argc, char** argv) {
    try {
        if (argc > 2 && std::string(argv[1]) == "write") {
            const std::int64_t most = argc > 3 ? std::atoi(argv[3]) : 60000;
            write(std::filesystem::path(argv[2]) / "train", Split::train, most);
            write(std::filesystem::path(argv[2]) / "test", Split::test, most / 6);
        } else {
            train(argc > 1 ? argv[1] : "images", argc > 2 ? std::atoi(argv[2]) : 4);
        }
    } catch (const std::exception& error) {
        std::cerr << "image_files: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
