// SPDX-License-Identifier: Apache-2.0
// Runs every test case on all ranks together; the program fails when a check fails on any rank.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <rtrain/comm/mpi.hpp>

int main(int argc, char** argv) {
    rtrain::comm::ensure_mpi();
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    doctest::Context context(argc, argv);
    context.setOption("minimal", rank != 0); // others print failures only
    int failed = context.run();
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return failed;
}
