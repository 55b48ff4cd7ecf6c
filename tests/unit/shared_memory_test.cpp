// SPDX-License-Identifier: Apache-2.0
#include "../thrown.hpp"

#include <rtrain/comm/memory/shared_memory.hpp>

#include <doctest/doctest.h>

#include <cstddef>

#include <unistd.h>

using rtrain::comm::SharedMemory;
using test::code_of;

TEST_CASE("SharedMemory.is_seen_by_who_has_a_ticket") {
    auto made = SharedMemory::create(8192);
    const auto opened = SharedMemory::open(made.ticket(), 8192);
    made.close_file();
    made.data()[5000] = std::byte{7};
    CHECK(opened.data()[5000] == std::byte{7});
}

// As from a process of the same number in another PID namespace.
TEST_CASE("SharedMemory.opens_nothing_else") {
    const auto made = SharedMemory::create(8192);
    const auto other = SharedMemory::create(8192);
    const auto ticket = made.ticket();

    auto of_other = ticket;
    of_other.file = other.ticket().file;
    CHECK(code_of([&] { (void)SharedMemory::open(of_other, 8192); }) == "RT-X12");
    CHECK(test::contains(test::message_of([&] { (void)SharedMemory::open(of_other, 8192); }),
                         "is a different file here"));
    of_other.file = STDIN_FILENO;
    CHECK(code_of([&] { (void)SharedMemory::open(of_other, 8192); }) == "RT-X12");
    of_other.file = 99'999;
    CHECK(code_of([&] { (void)SharedMemory::open(of_other, 8192); }) == "RT-X12");

    auto elsewhere = ticket;
    ++elsewhere.device;
    CHECK(code_of([&] { (void)SharedMemory::open(elsewhere, 8192); }) == "RT-X12");
    CHECK(code_of([&] { (void)SharedMemory::open(ticket, 4096); }) == "RT-X12");
}
