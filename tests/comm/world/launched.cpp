// SPDX-License-Identifier: Apache-2.0
// Joins the others, and says how many they are, or why there are none.
#include <rtrain/comm/world/mpi.hpp>

#include <cstdio>

int main() {
    try {
        rtrain::comm::ensure_mpi();
    } catch (const rtrain::Error& error) {
        std::printf("%s\n", error.what());
        return 1;
    }
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::printf("one of %d\n", size);
}
