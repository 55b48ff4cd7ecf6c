// SPDX-License-Identifier: Apache-2.0
/// @file
/// Models that tests of sharding train by both engines, and what compares them.
#pragma once

#include "support/ranks.hpp"

#include <rtrain/model/optimizer/sharded_optimizer.hpp>
#include <rtrain/model/sharded.hpp>

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace test {

using namespace rtrain;

template <class M>
using Sharded = ShardedParallel<M, backend::Mpi>;

template <class M>
Sharded<M> shard(Ranks& ranks, std::shared_ptr<M> module, const ShardedOptions& options = {}) {
    return Sharded<M>(ranks.any(), module, options);
}

/// As worker.prepare(optimizer) does.
template <class O, class M>
auto prepared(O optimizer, const DataParallel<M, backend::Mpi>& model) {
    rtrain::detail::SharedModels models;
    if (auto weights = model.prepared()->weights()) {
        models.push_back(std::move(weights));
    }
    return typename rtrain::detail::PreparedOptimizer<O>::type(std::move(optimizer), models);
}

struct MlpImpl : torch::nn::Module {
    explicit MlpImpl(std::vector<std::int64_t> widths = {7, 33, 65, 3}) {
        torch::manual_seed(3);
        for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
            layers->push_back(torch::nn::Linear(widths[i], widths[i + 1]));
            if (i + 2 < widths.size()) {
                layers->push_back(torch::nn::Tanh());
            }
        }
        register_module("layers", layers);
        in = widths.front();
        out = widths.back();
    }
    torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
    torch::nn::Sequential layers;
    std::int64_t in;
    std::int64_t out;
};

inline torch::Tensor random(int rank, int step, std::vector<std::int64_t> shape) {
    torch::manual_seed(static_cast<std::uint64_t>(1000 * step + rank));
    return torch::randn(shape);
}

template <class M>
void require_same_parameters(const M& one, const M& other, double tolerance = 0) {
    const auto theirs = other.named_parameters();
    for (const auto& item : one.named_parameters()) {
        CAPTURE(item.key());
        const auto& mine = item.value();
        CHECK(mine.sizes() == theirs[item.key()].sizes());
        const double most =
            mine.numel() == 0 ? 0 : (mine - theirs[item.key()]).abs().max().template item<double>();
        CHECK(most <= tolerance);
        if (tolerance == 0) {
            CHECK(mine.equal(theirs[item.key()]));
        }
    }
}

/// Trains the same module by both engines and compares.
template <class M, class O, class Options, class Step>
void compare(Ranks& ranks, const std::function<std::shared_ptr<M>()>& make, const Options& options,
             const DataParallelOptions& parallel, Step&& step, double tolerance = 0,
             ShardedOptions how = {}) {
    how.slot_bytes = 4096;
    how.data_parallel = parallel;
    auto plain_module = make();
    auto sharded_module = make();
    auto plain = ranks.prepare(plain_module, parallel);
    auto sharded = shard(ranks, sharded_module, how);
    auto plain_optimizer = prepared(O(plain->parameters(), options), plain);
    auto optimizer = prepared(O(sharded->parameters(), options), sharded);
    for (int i = 0; i < 5; ++i) {
        step(plain, plain_optimizer, i);
        step(static_cast<DataParallel<M, backend::Mpi>&>(sharded), optimizer, i);
    }
    require_same_parameters(*plain_module, *sharded_module, tolerance);
    ranks.mpi->barrier();
}

inline auto mlp_step(Ranks& ranks) {
    return [&ranks](auto& model, auto& optimizer, int i) {
        optimizer.zero_grad();
        const auto x = random(ranks.rank(), i, {5, model->in});
        const auto y = random(ranks.rank(), 100 + i, {5, model->out});
        torch::mse_loss(model(x), y).backward();
        optimizer.step();
    };
}

/// Tied, frozen, strided, empty, recurrent, of several types.
struct KindsImpl : torch::nn::Module {
    KindsImpl() {
        torch::manual_seed(5);
        embedding = register_module("embedding", torch::nn::Embedding(11, 6));
        lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(6, 6)));
        norm = register_module("norm", torch::nn::BatchNorm1d(6));
        strided = register_parameter("strided", torch::randn({6, 6}).t());
        frozen = register_parameter("frozen", torch::randn({6}), false);
        empty = register_parameter("empty", torch::randn({0, 4}));
        single = register_parameter("single", torch::randn({1}));
        big = register_parameter("big", torch::randn({6, 3000}));
        half = register_parameter("half", torch::randn({6}).to(torch::kDouble));
    }
    torch::Tensor forward(const torch::Tensor& x) {
        auto h = embedding(x); // (time, batch, 6)
        h = std::get<0>(lstm(h));
        h = norm(h.reshape({-1, 6}));
        h = torch::tanh(h.matmul(strided) + frozen + half.to(torch::kFloat));
        h = h + h.matmul(big).mean(1, true) + empty.sum() + single;
        return h.matmul(embedding->weight.t()); // tied
    }
    torch::nn::Embedding embedding{nullptr};
    torch::nn::LSTM lstm{nullptr};
    torch::nn::BatchNorm1d norm{nullptr};
    torch::Tensor strided, frozen, empty, single, big, half;
};

/// With sparse gradients.
struct TableImpl : torch::nn::Module {
    TableImpl() {
        torch::manual_seed(6);
        table = register_module(
            "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(40, 9).sparse(true)));
        head = register_module("head", torch::nn::Linear(9, 2));
    }
    torch::Tensor forward(const torch::Tensor& x) { return head(table(x)); }
    torch::nn::Embedding table{nullptr};
    torch::nn::Linear head{nullptr};
};

/// Uses `two` where it is told to, and `three` never.
struct TwoImpl : torch::nn::Module {
    TwoImpl() {
        torch::manual_seed(2);
        one = register_module("one", torch::nn::Linear(4, 4));
        two = register_module("two", torch::nn::Linear(4, 4));
        three = register_module("three", torch::nn::Linear(4, 4));
    }
    torch::Tensor forward(const torch::Tensor& x, bool both) {
        const auto h = torch::tanh(one(x));
        return both ? two(h) : h;
    }
    torch::nn::Linear one{nullptr}, two{nullptr}, three{nullptr};
};

inline auto kinds_step(Ranks& ranks) {
    return [&ranks](auto& model, auto& optimizer, int i) {
        optimizer.zero_grad();
        torch::manual_seed(static_cast<std::uint64_t>(50 * i + ranks.rank()));
        const auto x = torch::randint(11, {4, 3});
        const auto y = torch::randint(11, {12});
        torch::cross_entropy_loss(model(x), y).backward();
        optimizer.step();
    };
}

inline auto table_step(Ranks& ranks) {
    return [&ranks](auto& model, auto& optimizer, int i) {
        optimizer.zero_grad();
        torch::manual_seed(static_cast<std::uint64_t>(50 * i + ranks.rank()));
        model(torch::randint(40, {6})).square().mean().backward();
        optimizer.step();
    };
}

inline const std::function<std::shared_ptr<MlpImpl>()> make_mlp = [] {
    return std::make_shared<MlpImpl>();
};
inline const std::function<std::shared_ptr<KindsImpl>()> make_kinds = [] {
    return std::make_shared<KindsImpl>();
};

} // namespace test
