// SPDX-License-Identifier: Apache-2.0
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/storage/file/file.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include <unistd.h>

using namespace rtrain;
using test::code_of;

TEST_CASE("Storage.files_are_read_up_to_a_limit") {
    const test::Directory directory("limit");
    const auto file = directory.path() / "file";
    test::write(file, "12345");
    CHECK(storage::read_file(file, 5) == "12345");
    CHECK(code_of([&] { (void)storage::read_file(file, 4); }) == "RT-S4");
    CHECK(storage::read_file("/proc/self/cmdline").size() > 5); // does not state its size
    CHECK(code_of([&] { (void)storage::read_file("/proc/self/cmdline", 5); }) == "RT-S4");
    test::write(file, std::string(1 << 17, 'x'));
    CHECK(storage::read_file(file).size() == 1 << 17);
}
