// SPDX-License-Identifier: Apache-2.0
// Rank 1 is killed while the others wait for it in a collective; they must learn it from rtrain,
// not from mpirun, which is told to let them live.
#include <rtrain/backend/mpi.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/model/optimizer/node_copy.hpp>

#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

using namespace rtrain;

int main(int argc, char** argv) {
    backend::Mpi mpi;
    mpi.start({});
    auto& ranks = mpi.communicator();
    auto tensor = torch::ones({1000000});
    auto bucket = ranks.allocate_bucket(1000000, torch::kFloat);
    auto reduction = ranks.all_reduce_async(bucket, ReduceOp::sum);
    rtrain::detail::NodeCopy copy(ranks, {torch::zeros({1000000})}, 1);
    const std::map<std::string, std::function<void()>> collectives{
        {"all_reduce", [&] { ranks.all_reduce(tensor, ReduceOp::sum); }},
        {"bucket",
         [&] {
             reduction.start();
             reduction.wait();
         }},
        {"all_gather", [&] { (void)ranks.all_gather(tensor); }},
        {"broadcast", [&] { ranks.broadcast(tensor, 1); }},
        {"barrier", [&] { ranks.barrier(); }},
        {"receive", [&] { ranks.receive(tensor, 1); }},
        {"step", [&] { (void)copy.begin(1); }},
    };
    const auto& collective = collectives.at(argc > 1 ? argv[1] : "all_reduce");
    ranks.barrier();
    if (mpi.rank() == 1) {
        std::raise(SIGKILL);
    }
    const auto begin = std::chrono::steady_clock::now();
    try {
        collective();
    } catch (const PeerError& error) {
        const bool soon = std::chrono::steady_clock::now() - begin < std::chrono::seconds(20);
        const auto outcomes =
            mpi.finish(Failure{.kind = Failure::Kind::interrupted, .message = error.what()});
        const bool named = error.code() == "RT-X9" && outcomes.at(1) &&
                           outcomes.at(1)->kind == Failure::Kind::died;
        std::printf("rank %d: %s%s\n", mpi.rank(), error.what(), soon && named ? "" : " WRONG");
        std::fflush(stdout);
        std::_Exit(EXIT_SUCCESS); // MPI cannot be finalised without rank 1
    }
    std::printf("rank %d: WRONG, no error\n", mpi.rank());
    std::fflush(stdout);
    std::_Exit(EXIT_FAILURE);
}
