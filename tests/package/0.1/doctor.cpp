// SPDX-License-Identifier: Apache-2.0
// Prints what rtrain finds on this machine; paste it into a bug report.
//
//   ./doctor [storage path]            starts two ranks
//   mpirun -n 4 ./doctor [storage path]
#include <rtrain/comm/mpi.hpp>
#include <rtrain/trainer.hpp>

#include <torch/torch.h>
#include <torch/version.h>

#include <boost/version.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

const char* thread_level_name(int level) {
    switch (level) {
    case MPI_THREAD_SINGLE:
        return "single";
    case MPI_THREAD_FUNNELED:
        return "funneled";
    case MPI_THREAD_SERIALIZED:
        return "serialized";
    default:
        return "multiple";
    }
}

/// What rtrain makes of other members where the backend lacks one.
template <class Backend>
void print_backend(const char* name) {
    std::string offered;
    for (const auto& capability : rtrain::backend::capabilities<Backend>()) {
        if (capability.offered) {
            offered += " " + std::string(capability.member);
        }
    }
    std::printf("%-12s%s\n", name, offered.c_str());
    for (const auto& capability : rtrain::backend::capabilities<Backend>()) {
        if (!capability.offered) {
            std::printf("%-12s without %s: %s\n", "", std::string(capability.member).c_str(),
                        std::string(capability.otherwise).c_str());
        }
    }
}

void print_machine() {
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(mpi, &length);
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    std::printf("rtrain       %s\n", RTRAIN_VERSION);
    std::printf("libtorch     %s\n", TORCH_VERSION);
    std::printf("boost        %s\n", BOOST_LIB_VERSION);
    std::printf("compiler     %s\n", __VERSION__);
    std::printf("MPI          %s\n",
                std::string(mpi).substr(0, std::string(mpi).find(',')).c_str());
    std::printf("MPI threads  %s\n", thread_level_name(level));
    std::printf("CUDA         %s\n", torch::cuda::is_available()
                                         ? std::to_string(torch::cuda::device_count()).c_str()
                                         : "not available");
}

} // namespace

int main(int argc, char** argv) {
    try {
        rtrain::Trainer<> trainer{{
            .scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
            .run = {.name = "doctor", .storage_path = argc > 1 ? argv[1] : ""},
        }};
        const auto result = trainer.fit([](auto& worker) {
            if (worker.rank() == 0) {
                print_machine();
                print_backend<rtrain::backend::Mpi>("backend::Mpi");
                std::printf("ranks        %d\n", worker.size());
            }
            for (int rank = 0; rank < worker.size(); ++rank) {
                if (rank == worker.rank()) {
                    std::printf("rank %-7d node %d, local rank %d of %d, device %s, %d threads\n",
                                rank, worker.node_rank(), worker.local_rank(), worker.local_size(),
                                worker.device().str().c_str(), at::get_num_threads());
                    std::fflush(stdout);
                }
                worker.barrier();
            }
            auto ones = torch::ones({1000});
            worker.all_reduce(ones);
            worker.report({{"all_reduce", ones[0].template item<double>() == worker.size()}});
        });
        std::printf("all-reduce   %s\n",
                    result.metrics.at("all_reduce").as_bool() ? "correct" : "WRONG");
        std::printf("storage      %s can be written\n", result.path.parent_path().c_str());
    } catch (const rtrain::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return EXIT_FAILURE;
    }
}
