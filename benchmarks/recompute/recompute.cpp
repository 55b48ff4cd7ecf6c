// SPDX-License-Identifier: Apache-2.0
// What recompute() saves and costs: docs/recompute.md.
//
//   ./recompute_bench ROUNDS [THREADS]
//   ./recompute_bench 15 1
//
// Trains a stack of MLP blocks and a stack of GPT blocks, plain and with each block under
// recompute(), in turns. For each model, a JSON line: bytes that forward leaves for backward, the
// peak of a step above what lives between steps, milliseconds of the fastest step, and ratios.
#include <rtrain/model/activation/recompute.hpp>

#include <torch/torch.h>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using torch::Tensor;

/// Bytes of tensors that are allocated, and the most there were.
struct Bytes : c10::MemoryReportingInfoBase {
    std::int64_t live = 0;
    std::int64_t most = 0;
    void reportMemoryUsage(void* /*at*/, std::int64_t size, std::size_t /*allocated*/,
                           std::size_t /*reserved*/, c10::Device /*device*/) override {
        live += size;
        most = std::max(most, live);
    }
    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
};

struct Block : torch::nn::Module {
    virtual Tensor forward(const Tensor& x) = 0;
};

torch::nn::LayerNorm norm_of(std::int64_t width) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

struct MlpBlock : Block {
    explicit MlpBlock(std::int64_t width)
        : norm(register_module("norm", norm_of(width))),
          up(register_module("up", torch::nn::Linear(width, 4 * width))),
          down(register_module("down", torch::nn::Linear(4 * width, width))),
          drop(register_module("drop", torch::nn::Dropout(0.1))) {}
    Tensor forward(const Tensor& x) override { return x + drop(down(torch::gelu(up(norm(x))))); }
    torch::nn::LayerNorm norm;
    torch::nn::Linear up, down;
    torch::nn::Dropout drop;
};

struct GptBlock : Block {
    GptBlock(std::int64_t width, std::int64_t number)
        : heads(number), norm(register_module("norm", norm_of(width))),
          qkv(register_module("qkv", torch::nn::Linear(width, 3 * width))),
          out(register_module("out", torch::nn::Linear(width, width))),
          mlp(register_module("mlp", std::make_shared<MlpBlock>(width))) {}
    Tensor forward(const Tensor& x) override {
        const auto batch = x.size(0), length = x.size(1), width = x.size(2);
        const auto parts = qkv(norm(x)).view({batch, length, 3, heads, width / heads}).unbind(2);
        const auto of = [&](std::size_t i) { return parts[i].transpose(1, 2); };
        const Tensor scores =
            of(0).matmul(of(1).transpose(-2, -1)) / std::sqrt(static_cast<double>(width / heads));
        const Tensor future = torch::ones({length, length}, torch::kBool).triu(1);
        const Tensor mixed = torch::softmax(
            scores.masked_fill(future, -std::numeric_limits<double>::infinity()), -1);
        return mlp->forward(
            x + out(mixed.matmul(of(2)).transpose(1, 2).reshape({batch, length, width})));
    }
    std::int64_t heads;
    torch::nn::LayerNorm norm;
    torch::nn::Linear qkv, out;
    std::shared_ptr<MlpBlock> mlp;
};

struct Measured {
    std::int64_t saved = 0;
    std::int64_t peak = 0;
    double seconds = std::numeric_limits<double>::max();
};

void step(const std::vector<std::shared_ptr<Block>>& blocks, torch::optim::Optimizer& optimizer,
          Bytes& bytes, Tensor x, bool again, Measured& measured) {
    const std::int64_t before = bytes.live;
    bytes.most = before;
    const auto begin = Clock::now();
    for (const auto& block : blocks) {
        const auto f = [block](const Tensor& y) { return block->forward(y); };
        x = again ? rtrain::recompute(f, x) : f(x);
    }
    const Tensor loss = x.square().mean();
    measured.saved = bytes.live - before;
    loss.backward();
    measured.peak = bytes.most - before;
    optimizer.step();
    measured.seconds =
        std::min(measured.seconds, std::chrono::duration<double>(Clock::now() - begin).count());
    optimizer.zero_grad(false);
}

void measure(const char* name, const std::vector<std::shared_ptr<Block>>& blocks, const Tensor& x,
             int rounds, Bytes& bytes) {
    std::vector<Tensor> parameters;
    for (const auto& block : blocks) {
        for (const auto& parameter : block->parameters()) {
            parameters.push_back(parameter);
        }
    }
    torch::optim::SGD optimizer(parameters, 1e-3);
    std::array<Measured, 2> both;
    for (int round = 0; round < rounds; ++round) {
        for (const int again : {round % 2, 1 - round % 2}) {
            step(blocks, optimizer, bytes, x, again == 1, both[static_cast<std::size_t>(again)]);
        }
    }
    const auto& [plain, recomputed] = both;
    const auto ratio = [](auto a, auto b) {
        return static_cast<double>(a) / static_cast<double>(b);
    };
    std::printf("{\"model\": \"%s\", \"saved_mb\": [%.2f, %.2f], \"saved_ratio\": %.3f, "
                "\"peak_ratio\": %.3f, \"step_ms\": [%.2f, %.2f], \"step_ratio\": %.3f}\n",
                name, static_cast<double>(plain.saved) / 1e6,
                static_cast<double>(recomputed.saved) / 1e6, ratio(recomputed.saved, plain.saved),
                ratio(recomputed.peak, plain.peak), plain.seconds * 1e3, recomputed.seconds * 1e3,
                ratio(recomputed.seconds, plain.seconds));
    std::fflush(stdout);
}

} // namespace

int main(int count, char** arguments) {
    if (count < 2) {
        std::fprintf(stderr, "usage: %s ROUNDS [THREADS]\n", arguments[0]);
        return 2;
    }
    const int rounds = std::atoi(arguments[1]);
    torch::set_num_threads(count > 2 ? std::atoi(arguments[2]) : 1);
    torch::manual_seed(1);
    const auto bytes = std::make_shared<Bytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, bytes);
    std::vector<std::shared_ptr<Block>> mlp, gpt;
    for (int i = 0; i < 12; ++i) {
        mlp.push_back(std::make_shared<MlpBlock>(128));
    }
    for (int i = 0; i < 6; ++i) {
        gpt.push_back(std::make_shared<GptBlock>(192, 6));
    }
    measure("mlp, 12 blocks of 128, 512 rows", mlp, torch::randn({512, 128}), rounds, *bytes);
    measure("gpt, 6 blocks of 192, 4 x 128", gpt, torch::randn({4, 128, 192}), rounds, *bytes);
    return 0;
}
