// SPDX-License-Identifier: Apache-2.0
// As mpi/main.cpp, but without a GPU the program says so and ends with the code of a skipped test.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <rtrain/comm/mpi.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdio>

int main(int argc, char** argv) {
    rtrain::comm::ensure_mpi();
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA) ||
        c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount() == 0) {
        constexpr int skipped = 77;
        std::puts("skipped: there is no GPU");
        return skipped;
    }
    doctest::Context context(argc, argv);
    context.setOption("minimal", rank != 0); // others print failures only
    int failed = context.run();
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return failed;
}
