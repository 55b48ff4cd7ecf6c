// SPDX-License-Identifier: Apache-2.0
/// @file
/// A small MLP on a part of Fashion-MNIST: a function of its hyperparameters that takes some 30 ms,
/// the same for the same ones.
#pragma once

#include <rtrain/config/config.hpp>
#include <rtrain/data/batches.hpp>
#include <rtrain/data/readers/idx.hpp>

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

/// What it is trained on, and what it is measured with.
class FashionMnistMlp {
public:
    FashionMnistMlp() {
        torch::set_num_threads(1);
        std::tie(images_, labels_) = first(rtrain::data::Split::train, 1000);
        std::tie(other_images_, other_labels_) = first(rtrain::data::Split::test, 1000);
    }

    /// Mean cross entropy on the rows for measurement, after two epochs; 10, if it is more or none.
    [[nodiscard]] double loss(const rtrain::Config& config) const {
        torch::manual_seed(0);
        const auto number = [&](const char* name) { return config.at(name).to_number<double>(); };
        const auto width = config.at("width").to_number<std::int64_t>();
        torch::nn::Linear in(images_.size(1), width);
        torch::nn::Linear out(width, 10);
        const bool tanh = config.at("activation") == "tanh";
        const auto model = [&](const torch::Tensor& images) {
            const auto hidden = in(images);
            return out(tanh ? torch::tanh(hidden) : torch::relu(hidden));
        };
        auto parameters = in->parameters();
        const auto others = out->parameters();
        parameters.insert(parameters.end(), others.begin(), others.end());
        torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(number("lr"))
                                                    .momentum(number("momentum"))
                                                    .weight_decay(number("decay")));
        const auto batch = config.at("batch").to_number<std::int64_t>();
        for (int epoch = 0; epoch < 2; ++epoch) {
            for (std::int64_t row = 0; row + batch <= images_.size(0); row += batch) {
                optimizer.zero_grad();
                torch::cross_entropy_loss(model(images_.narrow(0, row, batch)),
                                          labels_.narrow(0, row, batch))
                    .backward();
                optimizer.step();
            }
        }
        const torch::NoGradGuard no_grad;
        const auto loss =
            torch::cross_entropy_loss(model(other_images_), other_labels_).item<double>();
        constexpr double most = 10;
        return loss < most ? loss : most; // also of NaN
    }

private:
    /// Images of 14 x 14 pixels in one dimension, with a mean of about 0, and their labels.
    static std::pair<torch::Tensor, torch::Tensor> first(rtrain::data::Split split,
                                                         std::int64_t rows) {
        const auto all = rtrain::data::fashion_mnist("/usr/share/datasets/fashion-mnist", split);
        const auto batch = all.rows(torch::arange(rows));
        const auto images = torch::avg_pool2d(batch["image"], 2).flatten(1);
        return {(images - 0.3) / 0.35, batch["label"]};
    }

    torch::Tensor images_, labels_;
    torch::Tensor other_images_, other_labels_;
};
