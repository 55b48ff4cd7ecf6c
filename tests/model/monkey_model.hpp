// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random small models for monkey.cpp: a chain of pieces of many kinds.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace monkey {

/// Draws that are the same on all ranks and in every replay.
class Dice {
public:
    explicit Dice(std::uint64_t seed) : engine_(seed) {}
    /// 0 to n - 1.
    [[nodiscard]] int below(int n) {
        return static_cast<int>(engine_() % static_cast<std::uint64_t>(n));
    }
    [[nodiscard]] bool one_in(int n) { return below(n) == 0; }
    template <class T>
    [[nodiscard]] T any_of(std::initializer_list<T> values) {
        return values.begin()[below(static_cast<int>(values.size()))];
    }

private:
    std::mt19937_64 engine_;
};

constexpr std::int64_t width = 6;

/// What a forward gets besides activations: a batch's input, and the way to take at branches.
struct Pass {
    torch::Tensor input;
    int route = 0;
};

/// Activations of `width` columns in and out.
struct Piece : torch::nn::Module {
    virtual torch::Tensor forward(const torch::Tensor& x, const Pass& pass) = 0;
};

struct Layer : Piece {
    torch::nn::Linear linear = register_module("linear", torch::nn::Linear(width, width));
    torch::Tensor forward(const torch::Tensor& x, const Pass&) override {
        return torch::tanh(linear(x));
    }
};

struct DoubleLayer : Piece {
    torch::nn::Linear linear = register_module("linear", torch::nn::Linear(width, width));
    DoubleLayer() { linear->to(torch::kDouble); }
    torch::Tensor forward(const torch::Tensor& x, const Pass&) override {
        return torch::tanh(linear(x.to(torch::kDouble))).to(torch::kFloat);
    }
};

struct Norm : Piece {
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(width));
    torch::Tensor forward(const torch::Tensor& x, const Pass&) override { return norm(x); }
};

struct Convolution : Piece {
    torch::nn::Conv1d conv =
        register_module("conv", torch::nn::Conv1d(torch::nn::Conv1dOptions(1, 1, 3).padding(1)));
    torch::Tensor forward(const torch::Tensor& x, const Pass&) override {
        return x + conv(x.unsqueeze(1)).squeeze(1);
    }
};

/// Indices are of the input: those of activations would hang on their last bits.
inline torch::Tensor words_of(const torch::Tensor& input) {
    return input.mul(3).abs().floor().remainder(5).to(torch::kLong);
}

struct Words : Piece {
    explicit Words(bool sparse)
        : words(register_module(
              "words",
              torch::nn::Embedding(torch::nn::EmbeddingOptions(5, width).sparse(sparse)))) {}
    torch::nn::Embedding words;
    torch::Tensor forward(const torch::Tensor& x, const Pass& pass) override {
        return x + words(words_of(pass.input)).mean(1);
    }
};

struct Bags : Piece {
    torch::nn::EmbeddingBag bags = register_module(
        "bags", torch::nn::EmbeddingBag(
                    torch::nn::EmbeddingBagOptions(5, width).sparse(true).mode(torch::kSum)));
    torch::Tensor forward(const torch::Tensor& x, const Pass& pass) override {
        return x + bags(words_of(pass.input));
    }
};

/// One weight by two names, used twice.
struct Tied : Piece {
    torch::nn::Linear linear = register_module("linear", torch::nn::Linear(width, width));
    torch::Tensor again = register_parameter("again", linear->weight);
    torch::Tensor forward(const torch::Tensor& x, const Pass&) override {
        return torch::linear(torch::tanh(linear(x)), again.t());
    }
};

struct Strided : Piece {
    torch::Tensor matrix = register_parameter("matrix", torch::randn({width, width}).t() * 0.3);
    torch::Tensor frozen = register_parameter("frozen", torch::ones({width}), false);
    torch::Tensor forward(const torch::Tensor& x, const Pass&) override {
        return torch::matmul(x, matrix) * frozen;
    }
};

/// One of three ways; the third has no parameters.
struct Branches : Piece {
    torch::nn::Linear left = register_module("left", torch::nn::Linear(width, width));
    torch::nn::Linear right = register_module("right", torch::nn::Linear(width, width));
    torch::Tensor forward(const torch::Tensor& x, const Pass& pass) override {
        return pass.route == 0 ? left(x) : pass.route == 1 ? right(x) : x;
    }
};

/// Activation checkpointing: forward keeps no graph, backward computes it anew and runs a backward
/// inside of the one under way.
struct Recompute : torch::autograd::Function<Recompute> {
    using Block = std::function<torch::Tensor(const torch::Tensor&)>;
    static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x,
                                 torch::Tensor /*anchor*/, std::shared_ptr<Block> block) {
        context->saved_data["x"] = x.detach();
        context->saved_data["block"] = reinterpret_cast<std::int64_t>(block.get());
        const torch::NoGradGuard no_grad;
        return (*block)(x);
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
        const torch::AutoGradMode with_grad(true);
        const auto x = context->saved_data["x"].toTensor().detach().requires_grad_();
        const auto& block = *reinterpret_cast<Block*>(context->saved_data["block"].toInt());
        block(x).backward(gradients.at(0));
        return {x.grad(), torch::Tensor(), torch::Tensor()};
    }
};

struct Checkpointed : Piece {
    torch::nn::Linear linear = register_module("linear", torch::nn::Linear(width, width));
    std::shared_ptr<Recompute::Block> block = std::make_shared<Recompute::Block>(
        [this](const torch::Tensor& x) { return torch::tanh(linear(x)); });
    torch::Tensor forward(const torch::Tensor& x, const Pass&) override {
        // The anchor makes the result need a gradient when nothing before it does.
        return Recompute::apply(x, torch::ones({1}, torch::requires_grad()), block);
    }
};

/// Uses a parameter, and gives it no gradient.
struct Undefined : torch::autograd::Function<Undefined> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, torch::Tensor x,
                                 torch::Tensor scale) {
        return x * scale;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list gradients) {
        return {gradients.at(0), torch::Tensor()};
    }
};

struct WithoutGradient : Piece {
    torch::Tensor scale = register_parameter("scale", torch::ones({width}));
    torch::Tensor forward(const torch::Tensor& x, const Pass&) override {
        return Undefined::apply(x, scale);
    }
};

/// The chain. Its output's layer always trains.
struct Net : torch::nn::Module {
    Net(std::uint64_t seed, bool branches) {
        torch::manual_seed(seed);
        Dice dice(seed);
        const int count = 1 + dice.below(5);
        for (int i = 0; i < count; ++i) {
            auto [name, piece] = draw(dice, branches);
            pieces.push_back(register_module(name + std::to_string(i), std::move(piece)));
        }
        scale = register_parameter("scale", torch::rand({width}) + 0.5);
        last = register_module("last", torch::nn::Linear(width, 2));
    }

    torch::Tensor forward(const Pass& pass) {
        torch::Tensor x = pass.input;
        for (const auto& piece : pieces) {
            x = piece->forward(x, pass);
        }
        return last(x * scale);
    }

    /// Another parameter under a name that there was.
    void replace_scale() { scale = parameters_["scale"] = (scale.detach() * 0.5).requires_grad_(); }

    /// Whether a parameter's gradient comes of a backward inside of backward.
    [[nodiscard]] bool recomputes() const {
        return std::any_of(pieces.begin(), pieces.end(), [](const auto& piece) {
            return std::dynamic_pointer_cast<Checkpointed>(piece) != nullptr;
        });
    }

    std::vector<std::shared_ptr<Piece>> pieces;
    torch::Tensor scale;
    torch::nn::Linear last{nullptr};

private:
    static std::pair<std::string, std::shared_ptr<Piece>> draw(Dice& dice, bool branches) {
        switch (dice.below(branches ? 12 : 11)) {
        case 0:
            return {"layer", std::make_shared<Layer>()};
        case 1:
            return {"double", std::make_shared<DoubleLayer>()};
        case 2:
            return {"norm", std::make_shared<Norm>()};
        case 3:
            return {"convolution", std::make_shared<Convolution>()};
        case 4:
            return {"words", std::make_shared<Words>(false)};
        case 5:
            return {"sparse", std::make_shared<Words>(true)};
        case 6:
            return {"bags", std::make_shared<Bags>()};
        case 7:
            return {"tied", std::make_shared<Tied>()};
        case 8:
            return {"strided", std::make_shared<Strided>()};
        case 9:
            return {"checkpointed", std::make_shared<Checkpointed>()};
        case 10:
            return {"undefined", std::make_shared<WithoutGradient>()};
        default:
            return {"branches", std::make_shared<Branches>()};
        }
    }
};

} // namespace monkey
