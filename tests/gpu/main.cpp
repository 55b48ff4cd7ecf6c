// SPDX-License-Identifier: Apache-2.0
// As support/ranks_main.cpp, but without a GPU the program says so and ends with the code of a
// skipped test.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "support/together.hpp"

#include <rtrain/comm/world/mpi.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdio>

int main(int argc, char** argv) {
    rtrain::comm::ensure_mpi();
    if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA) ||
        c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount() == 0) {
        constexpr int skipped = 77;
        std::puts("skipped: there is no GPU");
        return skipped;
    }
    return test::run_together(argc, argv);
}
