// SPDX-License-Identifier: Apache-2.0
// What crosses between nodes. nodes.py plays the nodes; on one real node nothing may cross.
#include "support/training.hpp"

#include <rtrain/backend/mpi.hpp>
#include <rtrain/backend/the_backend.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/model/optimizer/sharded_optimizer.hpp>
#include <rtrain/model/sharded.hpp>

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <memory>

#include <sys/stat.h>
#include <unistd.h>

using namespace rtrain;

namespace {

constexpr std::int64_t elements = 1 << 22;
constexpr double bytes = elements * sizeof(float);
constexpr int calls = 4;

backend::Mpi started() {
    backend::Mpi mpi({.timeout = std::chrono::seconds(60)});
    mpi.start({});
    return mpi;
}

/// Bytes that this node has sent through its one interface: /proc/net/dev is "eth0: " and eight
/// numbers of what came in, then bytes sent. 0 where nodes.py plays no part.
double sent() {
    std::ifstream file("/proc/self/net/dev");
    std::string word;
    while (file >> word && word != "eth0:") {
    }
    double number = 0;
    for (int field = 0; field < 9; ++field) {
        file >> number;
    }
    return std::getenv("RTRAIN_NODES") != nullptr ? number : 0;
}

/// Megabytes that this node sends for one call of `collective`.
template <class Collective>
double megabytes_sent_by(Collective&& collective) {
    collective(); // connections and buffers
    MPI_Barrier(MPI_COMM_WORLD);
    const double before = sent();
    MPI_Barrier(MPI_COMM_WORLD);
    for (int call = 0; call < calls; ++call) {
        collective();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double after = sent();
    MPI_Barrier(MPI_COMM_WORLD);
    return (after - before) / calls / 1e6;
}

/// The least that a node must send for an all-reduce over `nodes`: to reduce, its part of what the
/// others add up, and to share, what it has added up.
double least_megabytes() {
    const double nodes = static_cast<double>(test::ranks_of_nodes().size());
    return 2 * bytes * (nodes - 1) / nodes / 1e6;
}

void check_megabytes(double megabytes, double least = least_megabytes()) {
    CAPTURE(megabytes);
    CAPTURE(least);
    // 15 %: headers, acknowledgements, and uneven slices.
    CHECK(megabytes <= 1.15 * least + 0.1);
    CHECK(megabytes >= 0.85 * least);
}

} // namespace

TEST_CASE("Nodes.share_a_name_and_memory_inside_only") {
    std::array<char, 64> name{};
    gethostname(name.data(), name.size() - 1);
    struct stat shared_memory {};
    stat("/dev/shm", &shared_memory);
    const auto place = test::expected_place();
    const auto options = torch::TensorOptions(torch::kLong);
    auto mpi = started();
    const auto names = mpi.all_gather(
        torch::tensor(static_cast<std::int64_t>(std::hash<std::string>{}(name.data())), options));
    const auto devices =
        mpi.all_gather(torch::tensor(static_cast<std::int64_t>(shared_memory.st_dev), options));
    const auto nodes = mpi.all_gather(torch::tensor(std::int64_t{place.node_rank}, options));
    for (int peer = 0; peer < mpi.size(); ++peer) {
        CAPTURE(peer);
        const bool neighbours = nodes[peer].item<std::int64_t>() == place.node_rank;
        CHECK(names[peer].equal(names[mpi.rank()]) == neighbours);
        CHECK(devices[peer].equal(devices[mpi.rank()]) == neighbours);
    }
    CHECK(mpi.local_rank() == place.local_rank);
    CHECK(mpi.local_size() == place.local_size);
    CHECK(mpi.node_rank() == place.node_rank);
    (void)mpi.finish({});
}

TEST_CASE("Nodes.bytes_of_a_bucket_are_counted_per_node_and_not_per_rank") {
    auto mpi = started();
    auto bucket = mpi.allocate_bucket(elements, torch::kFloat);
    auto reduction = mpi.all_reduce_async(bucket, ReduceOp::sum);
    check_megabytes(megabytes_sent_by([&] {
        bucket.fill_(mpi.rank() + 1);
        reduction.start();
        reduction.wait();
    }));
    CHECK(bucket.eq(mpi.size() * (mpi.size() + 1) / 2).all().item<bool>());
    (void)mpi.finish({});
}

TEST_CASE("Nodes.bytes_of_any_tensor_are_counted_per_node_and_not_per_rank") {
    auto mpi = started();
    auto tensor = torch::empty({elements});
    check_megabytes(megabytes_sent_by([&] {
        tensor.fill_(mpi.rank() + 1);
        mpi.all_reduce(tensor, ReduceOp::sum);
    }));
    CHECK(tensor.eq(mpi.size() * (mpi.size() + 1) / 2).all().item<bool>());
    (void)mpi.finish({});
}

TEST_CASE("Nodes.a_sharded_model_sends_each_gradient_and_each_weight_once") {
    const auto mpi =
        std::make_shared<backend::Mpi>(backend::Mpi::Options{.timeout = std::chrono::seconds(60)});
    mpi->start({});
    const auto step_of = [&](const ShardedOptions& options) {
        constexpr std::int64_t width = 1024;
        torch::nn::Sequential net;
        for (std::int64_t i = 0; i < elements / width / width; ++i) {
            net->push_back(torch::nn::Linear(torch::nn::LinearOptions(width, width).bias(false)));
        }
        ShardedParallel<torch::nn::SequentialImpl, backend::Mpi> model(
            std::make_shared<rtrain::detail::TheBackend<backend::Mpi>>(mpi), net.ptr(), options);
        FusedOptimizer<torch::optim::SGD> optimizer(
            torch::optim::SGD(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
            {model.prepared()->weights()});
        const auto step = [&] {
            optimizer.zero_grad();
            const auto pass = [&] { model(torch::ones({1, width})).sum().backward(); };
            if (options.level == Shard::optimizer) { // passes that send nothing
                const auto alone = model.no_sync();
                pass();
                pass();
            }
            pass();
            optimizer.step();
        };
        // Of weights in bfloat16, half the bytes. Where they are gathered for each use, those of
        // four layers in forward, and in backward the second layer's: the last two are still
        // there, and the first needs none.
        const double gradients = options.data_parallel.hook.index() == 0 ? 1 : 0.5;
        const double weights = options.level == Shard::parameters ? 1.25
                               : options.parameter_type           ? 0.5
                                                                  : 1;
        const double times = (gradients + weights) / 2;
        check_megabytes(megabytes_sent_by(step), times * least_megabytes());
    };
    if (mpi->size() > 1) {
        const auto whole = Shard::gradients;
        step_of({});
        step_of({.level = whole});
        step_of({.level = Shard::optimizer});
        step_of({.level = whole, .share = Share::none});
        step_of({.level = whole, .step_in_backward = true});
        step_of({.level = whole,
                 .parameter_type = torch::kBFloat16,
                 .data_parallel = {.autocast = torch::kBFloat16}});
        step_of({.level = whole, .data_parallel = {.hook = hook::BFloat16{}}});
        step_of({.level = Shard::optimizer, .data_parallel = {.hook = hook::Float16{}}});
        step_of({.data_parallel = {.hook = hook::Float16{}}});
        step_of({.level = whole,
                 .step_in_backward = true,
                 .parameter_type = torch::kBFloat16,
                 .data_parallel = {.hook = hook::BFloat16{}, .autocast = torch::kBFloat16}});
    }
    (void)mpi->finish({});
}
