// SPDX-License-Identifier: Apache-2.0
/// @file
/// Training with autocast, loss scaling and clipping, as fixtures/mixed_precision/make_table.py
/// does it in Python.
#pragma once

#include <rtrain/model/amp/grad_scaler.hpp>
#include <rtrain/model/options/options.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace test::mixed_precision {

constexpr std::array<std::pair<at::ScalarType, const char*>, 3> types{
    {{at::kFloat, "float32"}, {at::kBFloat16, "bfloat16"}, {at::kHalf, "float16"}}};

inline at::Tensor filled(double scale, at::IntArrayRef shape) {
    const auto numbers = torch::arange(c10::multiply_integers(shape), at::kDouble);
    return ((numbers * 0.37).sin() * scale).to(at::kFloat).view(shape);
}

struct NetImpl : torch::nn::Module {
    NetImpl() {
        const torch::NoGradGuard no_grad;
        for (auto& parameter : parameters()) {
            parameter.copy_(filled(0.3, parameter.sizes()));
        }
    }
    at::Tensor forward(const at::Tensor& x) { return out(torch::gelu(in(x))); }
    torch::nn::Linear in = register_module("in", torch::nn::Linear(16, 32));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 4));
};
TORCH_MODULE(Net);

/// The script's figures for a type. `prepare(net, options)` returns the prepared model.
template <class Prepare>
std::vector<double> figures_of(at::ScalarType type, at::Device device, Prepare&& prepare) {
    rtrain::DataParallelOptions options;
    if (type != at::kFloat) {
        options.autocast = type;
    }
    auto model = prepare(Net(), options);
    const auto x = filled(1, {24, 16}).to(device);
    const auto y = filled(2, {24, 4}).to(device);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    rtrain::GradScaler scaler({.init_scale = 1024, .growth_interval = 3});
    std::vector<double> figures;
    for (int step = 0; step < 8; ++step) {
        optimizer.zero_grad();
        const auto loss = (model(x) - y).square().mean();
        const double factor = step == 4 ? std::numeric_limits<double>::infinity() : 1;
        (scaler.scale(loss) * factor).backward();
        scaler.unscale_(optimizer);
        figures.push_back(loss.template item<double>());
        figures.push_back(model.clip_grad_norm_(0.5));
        scaler.step(optimizer);
        scaler.update();
        figures.push_back(scaler.current_scale());
    }
    double sum = 0;
    for (const auto& parameter : model->parameters()) {
        sum += parameter.detach().to(at::kDouble).cpu().abs().sum().template item<double>();
    }
    figures.push_back(sum);
    return figures;
}

inline bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

/// The largest relative difference from a table's line for the type; infinite if it has none.
inline double difference_from(const std::filesystem::path& table, const std::string& type,
                              const std::vector<double>& figures) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string word;
        words >> word;
        if (word != type) {
            continue;
        }
        double most = 0;
        std::size_t count = 0;
        for (; words >> word && count < figures.size(); ++count) {
            const double expected = std::stod(word);
            const bool both_nan = std::isnan(expected) && std::isnan(figures[count]);
            const double difference = std::abs(figures[count] - expected) / std::abs(expected);
            most = both_nan || difference <= most ? most : difference; // NaN stays
        }
        return count == figures.size() ? most : std::numeric_limits<double>::infinity();
    }
    return std::numeric_limits<double>::infinity();
}

} // namespace test::mixed_precision
