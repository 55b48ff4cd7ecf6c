// SPDX-License-Identifier: Apache-2.0
// The models of the GPU benchmarks; gpu_bench.py has their Python twins.
#pragma once
#include <torch/torch.h>

namespace models {
namespace nn = torch::nn;
using torch::Tensor;

struct BottleneckImpl : nn::Module {
    BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride) {
        const std::int64_t out = 4 * width;
        conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(in, width, 1).bias(false)));
        bn1 = register_module("bn1", nn::BatchNorm2d(width));
        conv2 = register_module(
            "conv2",
            nn::Conv2d(nn::Conv2dOptions(width, width, 3).stride(stride).padding(1).bias(false)));
        bn2 = register_module("bn2", nn::BatchNorm2d(width));
        conv3 = register_module("conv3", nn::Conv2d(nn::Conv2dOptions(width, out, 1).bias(false)));
        bn3 = register_module("bn3", nn::BatchNorm2d(out));
        if (stride != 1 || in != out) {
            downsample = register_module(
                "downsample",
                nn::Sequential(nn::Conv2d(nn::Conv2dOptions(in, out, 1).stride(stride).bias(false)),
                               nn::BatchNorm2d(out)));
        }
    }
    Tensor forward(const Tensor& x) {
        Tensor y = bn1(conv1(x)).relu_();
        y = bn2(conv2(y)).relu_();
        y = bn3(conv3(y));
        y += downsample.is_empty() ? x : downsample->forward(x);
        return y.relu_();
    }
    nn::Conv2d conv1{nullptr}, conv2{nullptr}, conv3{nullptr};
    nn::BatchNorm2d bn1{nullptr}, bn2{nullptr}, bn3{nullptr};
    nn::Sequential downsample{nullptr};
};
TORCH_MODULE(Bottleneck);

/// torchvision's resnet50: the stride is in the 3x3 convolution.
struct ResNet50Impl : nn::Module {
    ResNet50Impl() {
        conv1 = register_module(
            "conv1", nn::Conv2d(nn::Conv2dOptions(3, 64, 7).stride(2).padding(3).bias(false)));
        bn1 = register_module("bn1", nn::BatchNorm2d(64));
        std::int64_t in = 64;
        const std::int64_t blocks[] = {3, 4, 6, 3};
        for (int stage = 0; stage < 4; ++stage) {
            nn::Sequential layer;
            const std::int64_t width = std::int64_t{64} << stage;
            for (std::int64_t i = 0; i < blocks[stage]; ++i) {
                layer->push_back(Bottleneck(in, width, i == 0 && stage > 0 ? 2 : 1));
                in = 4 * width;
            }
            layers.push_back(register_module("layer" + std::to_string(stage + 1), layer));
        }
        fc = register_module("fc", nn::Linear(2048, 1000));
        for (auto& module : modules(false)) {
            if (auto* const conv = module->as<nn::Conv2dImpl>()) {
                nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
            }
        }
    }
    Tensor forward(Tensor x) {
        x = bn1(conv1(x)).relu_();
        x = torch::max_pool2d(x, 3, 2, 1);
        for (auto& layer : layers) {
            x = layer->forward(x);
        }
        return fc(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
    }
    nn::Conv2d conv1{nullptr};
    nn::BatchNorm2d bn1{nullptr};
    std::vector<nn::Sequential> layers;
    nn::Linear fc{nullptr};
};
TORCH_MODULE(ResNet50);

struct MlpImpl : nn::Module {
    explicit MlpImpl(std::int64_t units = 512) {
        in = register_module("in", nn::Linear(784, units));
        hidden = register_module("hidden", nn::Linear(units, units));
        out = register_module("out", nn::Linear(units, 10));
    }
    Tensor forward(const Tensor& x) { return out(torch::relu(hidden(torch::relu(in(x))))); }
    nn::Linear in{nullptr}, hidden{nullptr}, out{nullptr};
};
TORCH_MODULE(Mlp);

struct GptSize {
    std::int64_t layers = 12, width = 768, heads = 12, length = 1024, words = 50304;
};
struct GptBlockImpl : nn::Module {
    explicit GptBlockImpl(const GptSize& s) : heads(s.heads) {
        ln1 = register_module("ln1", nn::LayerNorm(nn::LayerNormOptions({s.width})));
        qkv = register_module("qkv", nn::Linear(s.width, 3 * s.width));
        proj = register_module("proj", nn::Linear(s.width, s.width));
        ln2 = register_module("ln2", nn::LayerNorm(nn::LayerNormOptions({s.width})));
        up = register_module("up", nn::Linear(s.width, 4 * s.width));
        down = register_module("down", nn::Linear(4 * s.width, s.width));
    }
    Tensor forward(Tensor x) {
        const auto b = x.size(0), t = x.size(1), c = x.size(2);
        auto parts = qkv(ln1(x)).view({b, t, 3, heads, c / heads}).permute({2, 0, 3, 1, 4});
        auto y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
        x = x + proj(y.transpose(1, 2).reshape({b, t, c}));
        return x + down(torch::gelu(up(ln2(x)), "tanh"));
    }
    std::int64_t heads;
    nn::LayerNorm ln1{nullptr}, ln2{nullptr};
    nn::Linear qkv{nullptr}, proj{nullptr}, up{nullptr}, down{nullptr};
};
TORCH_MODULE(GptBlock);
struct GptImpl : nn::Module {
    explicit GptImpl(const GptSize& s = {}) : size(s) {
        words = register_module("words", nn::Embedding(s.words, s.width));
        places = register_module("places", nn::Embedding(s.length, s.width));
        for (std::int64_t i = 0; i < s.layers; ++i) {
            blocks->push_back(GptBlock(s));
        }
        register_module("blocks", blocks);
        ln = register_module("ln", nn::LayerNorm(nn::LayerNormOptions({s.width})));
        for (auto& p : parameters()) {
            if (p.dim() > 1) {
                nn::init::normal_(p, 0.0, 0.02);
            }
        }
    }
    Tensor forward(const Tensor& ids) {
        auto x = words(ids) + places(torch::arange(ids.size(1), ids.options()));
        for (const auto& block : *blocks) {
            x = block->as<GptBlockImpl>()->forward(x);
        }
        return torch::linear(ln(x), words->weight);
    }
    GptSize size;
    nn::Embedding words{nullptr}, places{nullptr};
    nn::ModuleList blocks;
    nn::LayerNorm ln{nullptr};
};
TORCH_MODULE(Gpt);
} // namespace models
