// SPDX-License-Identifier: Apache-2.0
// What a rank of a node needs to train a model with AdamW: time of a step, and memory (Pss, which
// counts what processes share once).
//
//   mpirun -n 2 ./sharded MODE WIDTH LAYERS BATCH STEPS
//   mpirun -n 2 ./sharded sharded 2048 6 64 20
//
// MODE: dataparallel, sharded, stepping (step_in_backward); with -autocast behind it, in bfloat16;
// bfloat16, that is sharded-autocast with weights in it; divided, that is Shard::parameters, on
// nodes that tests/nodes/nodes.py plays. `operators`: what gathering on use adds to an operator.
// Rank 0 prints a JSON line. peers.py does the same with torch's DistributedDataParallel and
// fully_shard.
#include <rtrain/backend/mpi.hpp>
#include <rtrain/model/sharded.hpp>
#include <rtrain/model/sharded_optimizer.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <malloc.h>

namespace {

using rtrain::backend::Mpi;

/// KiB that /proc says this process has of `kind`.
double kib(const std::string& kind) {
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with(kind)) {
            return std::stod(line.substr(kind.size()));
        }
    }
    return 0;
}

struct Plan {
    std::string mode;
    std::int64_t width, layers, batch;
    int steps;
};

torch::nn::Sequential mlp(const Plan& plan) {
    torch::manual_seed(7);
    torch::nn::Sequential net;
    for (std::int64_t i = 0; i < plan.layers; ++i) {
        net->push_back(torch::nn::Linear(plan.width, plan.width));
        if (i + 1 < plan.layers) {
            net->push_back(torch::nn::ReLU());
        }
    }
    return net;
}

/// Milliseconds of each step.
template <class Model, class Optimizer>
std::vector<double> train(Mpi& ranks, const Plan& plan, Model& model, Optimizer& optimizer) {
    torch::manual_seed(static_cast<std::uint64_t>(100 + ranks.rank()));
    const auto x = torch::randn({plan.batch, plan.width});
    const auto y = torch::randn({plan.batch, plan.width});
    std::vector<double> times;
    for (int step = -3; step < plan.steps; ++step) {
        const auto begun = std::chrono::steady_clock::now();
        optimizer.zero_grad();
        torch::mse_loss(model(x), y).backward();
        optimizer.step();
        const std::chrono::duration<double, std::milli> taken =
            std::chrono::steady_clock::now() - begun;
        if (step >= 0) {
            times.push_back(taken.count());
        }
    }
    return times;
}

void print(Mpi& ranks, const Plan& plan, const torch::nn::Module& module,
           std::vector<double> times) {
    std::int64_t parameters = 0;
    double sum = 0;
    for (const auto& parameter : module.parameters()) {
        parameters += parameter.numel();
        sum += parameter.detach().to(torch::kDouble).abs().sum().item<double>();
    }
    ::malloc_trim(0);
    at::Tensor pss = torch::tensor({kib("Pss:")}, torch::kDouble);
    ranks.all_reduce(pss, rtrain::ReduceOp::mean);
    std::sort(times.begin(), times.end());
    if (ranks.rank() == 0) {
        std::printf("{\"mode\": \"%s\", \"ranks\": %d, \"parameters\": %lld, \"best_ms\": %.1f, "
                    "\"median_ms\": %.1f, \"pss_mb\": %.0f, \"sum\": %.9g}\n",
                    plan.mode.c_str(), ranks.size(), static_cast<long long>(parameters),
                    times.front(), times[times.size() / 2], pss.item<double>() / 1024, sum);
    }
}

rtrain::ShardedOptions options_of(const std::string& mode) {
    const bool rounds = mode == "bfloat16";
    rtrain::ShardedOptions options{.step_in_backward = mode.starts_with("stepping")};
    if (mode == "divided") {
        options.level = rtrain::Shard::parameters;
    }
    if (rounds) {
        options.parameter_type = torch::kBFloat16;
    }
    if (rounds || mode.ends_with("-autocast")) {
        options.data_parallel.autocast = torch::kBFloat16;
    }
    return options;
}

void run(const std::shared_ptr<Mpi>& ranks, const Plan& plan) {
    using Net = torch::nn::SequentialImpl;
    const auto any = std::make_shared<rtrain::detail::TheBackend<Mpi>>(ranks);
    const auto options = torch::optim::AdamWOptions(1e-3);
    auto net = mlp(plan);
    if (!plan.mode.starts_with("dataparallel")) {
        rtrain::ShardedParallel<Net, Mpi> model(any, net.ptr(), options_of(plan.mode));
        rtrain::detail::SharedModels shared;
        if (auto weights = model.prepared()->weights()) {
            shared.push_back(std::move(weights));
        }
        rtrain::FusedOptimizer<torch::optim::AdamW> optimizer(
            torch::optim::AdamW(model->parameters(), options), shared);
        print(*ranks, plan, *model, train(*ranks, plan, model, optimizer));
    } else {
        rtrain::DataParallel<Net, Mpi> model(any, net.ptr(), options_of(plan.mode).data_parallel);
        rtrain::FusedOptimizer<torch::optim::AdamW> optimizer(
            torch::optim::AdamW(model->parameters(), options));
        print(*ranks, plan, *model, train(*ranks, plan, model, optimizer));
    }
}

/// Microseconds of a small operator, the best of some rounds.
double microseconds_of_operator() {
    const torch::NoGradGuard no_grad;
    constexpr int operators = 2000;
    auto x = torch::ones({8});
    double best = 1e9;
    for (int round = 0; round < 50; ++round) {
        const auto begun = std::chrono::steady_clock::now();
        for (int i = 0; i < operators; ++i) {
            x.add_(1.0);
        }
        const std::chrono::duration<double, std::micro> taken =
            std::chrono::steady_clock::now() - begun;
        best = std::min(best, taken.count() / operators);
    }
    return best;
}

/// Without and with a model whose weights are gathered, each rank with slots of its own.
void compare_operators(const std::shared_ptr<Mpi>& ranks, const Plan& plan) {
    const double bare = microseconds_of_operator();
    const rtrain::ShardedParallel<torch::nn::SequentialImpl, Mpi> model(
        std::make_shared<rtrain::detail::TheBackend<Mpi>>(ranks), mlp(plan).ptr(),
        {.level = rtrain::Shard::parameters, .share = rtrain::Share::none});
    const double seen = microseconds_of_operator();
    if (ranks->rank() == 0) {
        std::printf("{\"mode\": \"operators\", \"bare_us\": %.2f, \"seen_us\": %.2f}\n", bare,
                    seen);
    }
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 6) {
        std::fprintf(stderr, "usage: sharded MODE WIDTH LAYERS BATCH STEPS\n");
        return 2;
    }
    auto ranks = std::make_shared<Mpi>();
    ranks->start({});
    const Plan plan{argv[1], std::stoll(argv[2]), std::stoll(argv[3]), std::stoll(argv[4]),
                    std::stoi(argv[5])};
    plan.mode == "operators" ? compare_operators(ranks, plan) : run(ranks, plan);
    (void)ranks->finish({});
    return 0;
}
