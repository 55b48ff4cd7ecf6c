// SPDX-License-Identifier: Apache-2.0
// memory_needed() against what the kernel says ranks have.
#include "support/ranks.hpp"
#include "support/thrown.hpp"
#include "support/training.hpp"

#include <rtrain/model/memory_needed.hpp>
#include <rtrain/model/optimizer/sharded_optimizer.hpp>
#include <rtrain/model/sharded.hpp>

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <malloc.h>

using namespace rtrain;
using test::Ranks;

namespace {

constexpr double mib = 1 << 20;

/// The mean over ranks of the bytes this process has, where shared ones count in parts. Without
/// those of files: of libraries, each program that begins or ends changes them.
double mean_pss(Ranks& ranks) {
    ::malloc_trim(0);
    ranks.mpi->barrier();
    double kib = 0;
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("Pss_Anon:") || line.starts_with("Pss_Shmem:")) {
            kib += std::stod(line.substr(line.find(':') + 1));
        }
    }
    at::Tensor mean = torch::tensor({kib * 1024}, torch::kDouble);
    ranks.mpi->all_reduce(mean, ReduceOp::mean);
    return mean.item<double>();
}

torch::nn::Sequential blocks(std::int64_t width, int layers) {
    torch::nn::Sequential net;
    for (int i = 0; i < layers; ++i) {
        net->push_back(torch::nn::Linear(width, width));
    }
    return net;
}

using Net = torch::nn::SequentialImpl;

DataParallel<Net, backend::Mpi> prepare(Ranks& ranks, const std::shared_ptr<Net>& net,
                                        const DataParallelOptions& options) {
    return ranks.prepare(net, options);
}
ShardedParallel<Net, backend::Mpi> prepare(Ranks& ranks, const std::shared_ptr<Net>& net,
                                           const ShardedOptions& options) {
    return {ranks.any(), net, options};
}

/// What three steps of AdamW leave, less what there was before the model.
template <class Options>
double measured(Ranks& ranks, std::int64_t width, int layers, const Options& options) {
    const double before = mean_pss(ranks);
    auto net = blocks(width, layers);
    auto model = prepare(ranks, net.ptr(), options);
    rtrain::detail::SharedModels shared;
    if (auto weights = model.prepared()->weights()) {
        shared.push_back(std::move(weights));
    }
    FusedOptimizer<torch::optim::AdamW> optimizer(torch::optim::AdamW(model->parameters()), shared);
    for (int i = 0; i < 3; ++i) {
        optimizer.zero_grad();
        model(torch::ones({2, width})).square().mean().backward();
        if (i < 2) { // gradients of the last pass stay
            optimizer.step();
        }
    }
    if constexpr (std::is_same_v<Options, ShardedOptions>) {
        if (options.level == Shard::optimizer) {
            const auto alone = model.no_sync();
            model(torch::ones({2, width})).square().mean().backward();
        }
    }
    const double after = mean_pss(ranks);
    optimizer.zero_grad();
    optimizer.step();
    return after - before;
}

bool is_offloaded(const DataParallelOptions& /*options*/) {
    return false;
}
bool is_offloaded(const ShardedOptions& options) {
    return std::holds_alternative<offload::Disk>(options.offload);
}

/// What the ranks of a node have once instead of each, where they step together.
double shared_by(const DataParallelOptions& /*options*/, const MemoryNeeded& needed) {
    const auto whole = static_cast<double>(needed.weights + needed.moments);
    return whole - whole / needed.ranks_per_node;
}
double shared_by(const ShardedOptions& /*options*/, const MemoryNeeded& /*needed*/) {
    return 0;
}

ShardedOptions in_bfloat16() {
    return {.parameter_type = torch::kBFloat16, .data_parallel = {.autocast = torch::kBFloat16}};
}

template <class Options>
void compare(Ranks& ranks, const Options& options) {
    const std::vector<int> nodes = test::ranks_of_nodes();
    if (nodes.size() > 1) { // MPI's buffers are what differs there
        return;
    }
    constexpr std::int64_t width = 1024;
    constexpr int layers = 28; // 29 M parameters
    const auto needed = memory_needed(*blocks(width, layers), options, 1, nodes.front());
    (void)measured(ranks, 256, 2, options); // what there is once in a process
    const double bytes = measured(ranks, width, layers, options);
    const double rank = static_cast<double>(needed.rank());
    CAPTURE(rank / mib);
    CAPTURE(bytes / mib);
    CHECK(bytes <= 1.05 * rank + 4 * mib);
    // Moments on a disk that a step has in memory are dropped after it.
    const double passing = is_offloaded(options) ? static_cast<double>(needed.moments) : 0;
    CHECK(bytes >= 0.9 * (rank - passing - shared_by(options, needed)) - 4 * mib);
    CHECK(needed.node() == needed.rank() * nodes.front());
}

} // namespace

#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("MemoryNeeded.is_what_ranks_have") {
    Ranks ranks;
    compare(ranks, DataParallelOptions{});
    compare(ranks, ShardedOptions{});
    compare(ranks, ShardedOptions{.step_in_backward = true});
    compare(ranks, ShardedOptions{.level = Shard::optimizer});
    compare(ranks, ShardedOptions{.share = Share::none});
    compare(ranks, ShardedOptions{.level = Shard::gradients, .share = Share::none});
    compare(ranks, in_bfloat16());
    const test::Directory directory("offload-memory");
    compare(ranks, ShardedOptions{.offload = offload::Disk{directory.path()}});
}
#endif

TEST_CASE("MemoryNeeded.follows_the_formulas") {
    auto net = blocks(1024, 16);
    const double p = 16 * (1024 * 1024 + 1024) * 4.0; // bytes
    const auto near = [](std::int64_t bytes, double expected) {
        return std::abs(static_cast<double>(bytes) - expected) <= 0.01 * expected;
    };
    const DataParallelOptions whole;
    CHECK(near(memory_needed(*net, whole, 1, 2).rank(), 4 * p));
    CHECK(near(memory_needed(*net, whole, 2, 4, 0).rank(), 2 * p + p / 8));
    CHECK(near(
        memory_needed(*net, DataParallelOptions{.gradient_as_bucket_view = false}, 1, 2, 1).rank(),
        4 * p));
    const ShardedOptions sharded;
    const double slots = 2 * 4 * mib;
    CHECK(near(memory_needed(*net, sharded, 1, 1).rank(), 4 * p));
    CHECK(near(memory_needed(*net, sharded, 1, 4).rank(), p / 4 + 3 * p / 4 + slots));
    CHECK(near(memory_needed(*net, sharded, 1, 4, 1).rank(), p / 4 + 2 * p / 4 + slots));
    const ShardedOptions whole_nodes{.level = Shard::gradients};
    const auto between = memory_needed(*net, whole_nodes, 2, 2);
    CHECK(near(between.rank() - between.slots, p / 2 + 3 * p / 4));
    const auto stepping = memory_needed(*net, ShardedOptions{.step_in_backward = true}, 1, 4);
    CHECK(stepping.gradients <= 2 * static_cast<std::int64_t>(mib)); // a layer's, of four ranks
    CHECK(near(stepping.passing, 4 * mib));
    // Each of 16 layers is a unit, of which the ranks of a node share two.
    const auto divided = memory_needed(*net, sharded, 2, 2);
    CHECK(near(divided.rank() - divided.slots, p / 4 + 2 * p / 16 / 2 + 3 * p / 4));
    CHECK(memory_needed(*net, ShardedOptions{.share = Share::numa}, 2, 2).rank() == divided.rank());
    CHECK(memory_needed(*net, whole_nodes, 1, 4).rank() ==
          memory_needed(*net, sharded, 1, 4).rank());
    const ShardedOptions accumulating{.level = Shard::optimizer};
    CHECK(near(memory_needed(*net, accumulating, 1, 4).rank(), p / 4 + p + 3 * p / 4 + slots));
    CHECK(near(memory_needed(*net, in_bfloat16(), 1, 4).rank(), p / 8 + p / 4 + 3 * p / 4 + slots));
    const ShardedOptions own_copies{.level = Shard::gradients, .share = Share::none};
    const auto copies = memory_needed(*net, own_copies, 1, 4);
    CHECK(near(copies.rank() - copies.slots, p + 3 * p / 4));
    // Messages: 4 MiB of each rank's weights, or as much as a unit has.
    CHECK(near(copies.slots, slots + 4 * 4 * mib));
    const ShardedOptions gathered{.share = Share::none};
    CHECK(near(memory_needed(*net, gathered, 1, 4).slots, slots + 4 * mib));
    for (auto& parameter : net->parameters()) {
        parameter.set_requires_grad(false);
    }
    CHECK(near(memory_needed(*net, sharded, 1, 4).rank() + 1, p / 4));
    CHECK(test::code_of([&] { (void)memory_needed(*net, sharded, 0, 4); }) == "RT-C11");
    CHECK(test::code_of([&] { (void)memory_needed(*net, whole, 1, 1, -1); }) == "RT-C11");
}
