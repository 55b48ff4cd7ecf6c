// SPDX-License-Identifier: Apache-2.0
// A suite in which one rank leaves a test case early while the others wait for it.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "together.hpp"

#include <rtrain/comm/world/mpi.hpp>

#include <stdexcept>

namespace {

struct Meeting {
    Meeting() = default;
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;
    ~Meeting() { MPI_Barrier(MPI_COMM_WORLD); }
};

int this_rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

} // namespace

TEST_CASE("Alone.requires") {
    const Meeting meeting;
    REQUIRE(this_rank() != 1);
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("Alone.throws") {
    if (this_rank() == 1) {
        throw std::runtime_error("bad luck");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
    rtrain::comm::ensure_mpi();
    return test::run_together(argc, argv);
}
