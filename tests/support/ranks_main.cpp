// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "together.hpp"

#include <rtrain/comm/world/mpi.hpp>

int main(int argc, char** argv) {
    rtrain::comm::ensure_mpi();
    return test::run_together(argc, argv);
}
