// SPDX-License-Identifier: Apache-2.0
#include "support/files.hpp"
#include "support/thrown.hpp"
#include "support/without_locks.hpp"

#include <rtrain/data/files/files.hpp>
#include <rtrain/data/files/index_cache.hpp>
#include <rtrain/data/files/lines.hpp>
#include <rtrain/format/webdataset.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/testing/scratch.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

using namespace rtrain;
namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::WithoutLocks;
using test::write;

TEST_CASE("Lines.an_index_is_kept_as_long_as_the_file_is_the_same") {
    const testing::ScratchDirectory scratch;
    const fs::path path = scratch.path() / "a.txt";
    write(path, "one\ntwo\n");
    int made = 0;
    const auto rows = [&] {
        const auto file = data::list_files(path).front();
        const auto index = data::index_file(file, "lines", [&] {
            ++made;
            return data::index_lines(file, {});
        });
        return index->blocks.front().rows;
    };
    CHECK(rows() == 2);
    CHECK(rows() == 2);
    CHECK(made == 1);
    const auto before = data::list_files(path).front();
    const std::uint32_t content = data::index_lines(before, {}).content;
    write(path, "one\nTWO\n");
    CHECK(data::index_lines(data::list_files(path).front(), {}).content != content);
    write(path, "one\ntwo\n"); // as a copy is written
    CHECK(data::index_lines(data::list_files(path).front(), {}).content == content);
    write(path, "one\ntwo\nthree\n");
    CHECK(rows() == 3);
    CHECK(made == 2);
    CHECK(contains(error_of([&] { data::require_unchanged(before); }), "[RT-D29]"));
    const auto time = fs::last_write_time(path);
    write(path, "one\ntwo\n3\n4th\n"); // of the same size and time, as `cp -p` leaves it
    fs::last_write_time(path, time);
    CHECK(rows() == 4);
    const auto after = data::list_files(path).front();
    CHECK(contains(error_of([&] { static_cast<void>(data::read_exactly(after, 10, 100)); }),
                   "[RT-D29]"));
    const data::FileIndex other{.size = after.size(),
                                .modified_ns = after.modified_ns(),
                                .blocks = {{.offset = 0, .bytes = 5, .rows = 1}},
                                .content = 0xFFFF'FFFF,
                                .sample = 0xFFFF'FFFE};
    CHECK(data::parse_index(data::to_bytes(other)) == other);
    for (std::string bytes :
         {data::to_bytes(other) + "x", std::string("RTRAINI3"), std::string()}) {
        CHECK(contains(error_of([&] { static_cast<void>(data::parse_index(bytes)); }), "[RT-D28]"));
    }
    std::string overlapping = data::to_bytes(other);
    overlapping += overlapping.substr(32);
    CHECK(
        contains(error_of([&] { static_cast<void>(data::parse_index(overlapping)); }), "overlaps"));
}

TEST_CASE("Lines.an_index_is_made_where_nothing_can_be_locked") {
    const testing::ScratchDirectory scratch;
    const fs::path path = scratch.path() / "a.txt";
    write(path, std::string(1U << 20U, '\n') + "row\n"); // as large as an index that is shared
    const auto file = data::list_files(path).front();
    const WithoutLocks here;
    const auto index = data::index_file(
        file, "lines", [&] { return data::index_lines(file, {}); }, data::Busy::skip);
    REQUIRE(index != nullptr);
    CHECK(index->blocks.back().rows == 1);
}
