// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"

#include <rtrain/comm/memory/shared_memory.hpp>
#include <rtrain/process/memory/written_pages.hpp>

#include <doctest/doctest.h>

#include <cstddef>

#include <sys/mman.h>
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

TEST_CASE("SharedMemory.what_is_written_to_a_private_mapping_stays_there") {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const auto made = SharedMemory::create(8 * page);
    std::byte* const view = made.map_private();
    rtrain::process::WrittenPages pages(view, 8 * page);
    CHECK(pages.find().value().empty());
    view[2 * page] = view[3 * page + 1] = view[7 * page] = std::byte{1};
    made.data()[2 * page] = made.data()[4 * page] = std::byte{2};
    CHECK(made.data()[3 * page + 1] == std::byte{0});
    CHECK(view[2 * page] == std::byte{1});
    CHECK(view[4 * page] == std::byte{2});

    const auto written = pages.find().value();
    REQUIRE(written.size() == 2);
    CHECK(written[0].begin == 2 * page);
    CHECK(written[0].end == 4 * page);
    CHECK(written[1].begin == 7 * page);
    CHECK(written[1].end == 8 * page);
    pages.drop(written);
    CHECK(pages.find().value().empty());
    CHECK(view[2 * page] == std::byte{2});
    CHECK(view[7 * page] == std::byte{0});
    ::munmap(view, 8 * page);
}
