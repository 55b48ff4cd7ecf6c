// SPDX-License-Identifier: Apache-2.0
// Expected: on each rank "rank R of N, rtrain 0.1.0" and the arguments.
#include <rtrain/fwd.hpp>
#include <rtrain/version.hpp>

#include <mpi.h>

#include <cstdio>

static_assert(RTRAIN_VERSION_MAJOR == 0 && RTRAIN_VERSION_MINOR == 1);
using Trainer = rtrain::Trainer<rtrain::backend::Local>; // declared, not compiled

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::printf("rank %d of %d, rtrain " RTRAIN_VERSION, rank, size);
    for (int i = 1; i < argc; ++i) {
        std::printf(" %s", argv[i]);
    }
    std::printf("\n");
    MPI_Finalize();
}
