// SPDX-License-Identifier: Apache-2.0
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/storage/file/bulk_file.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/growing_file.hpp>
#include <rtrain/storage/file/lock.hpp>
#include <rtrain/storage/file/mapping.hpp>
#include <rtrain/storage/local.hpp>
#include <rtrain/testing/scratch.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include <sys/stat.h>

using namespace rtrain;
namespace fs = std::filesystem;
using test::code_of;
using test::contains;
using test::error_of;
using test::write;

TEST_CASE("Local.what_cannot_be_looked_at_is_not_taken_for_absent") {
    const testing::ScratchDirectory scratch;
    const storage::Local files;
    const std::string circle = (scratch.path() / "circle").string();
    fs::create_symlink("circle", circle);
    write(scratch.path() / "file", "");
    CHECK(files.exists((scratch.path() / "file").string()));
    CHECK(files.exists(scratch.path().string()));
    CHECK_FALSE(files.exists((scratch.path() / "none").string()));
    CHECK_FALSE(files.exists((scratch.path() / "file/none").string()));
    const std::string error = error_of([&] { static_cast<void>(files.exists(circle)); });
    CHECK(contains(error, "[RT-S3]"));
    CHECK(contains(error, circle));
}

TEST_CASE("Storage.pipes_and_directories_are_errors_that_do_not_block" * doctest::timeout(30)) {
    const test::Directory directory("pipes");
    const auto pipe = directory.path() / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    for (const auto& path : {pipe, directory.path()}) {
        CAPTURE(path.string());
        CHECK(code_of([&] { (void)storage::read_file(path); }) == "RT-S4");
        CHECK(code_of([&] { (void)storage::Local{}.read(path.string()); }) == "RT-S4");
        CHECK(code_of([&] { (void)storage::Local{}.read_at(path.string(), 0, 1); }) == "RT-S4");
        CHECK(code_of([&] { storage::InputFile{path}; }) == "RT-S4");
        CHECK(code_of([&] { storage::Mapping{path}; }) == "RT-S4");
        CHECK(code_of([&] {
                  storage::Local{}.upload(path, (directory.path() / "copy").string());
              }) == "RT-S4");
        CHECK(!storage::open_stream(path));
        CHECK(code_of([&] { storage::OutputFile{path}; }) == "RT-S3");
        CHECK(code_of([&] { storage::GrowingFile{path}; }) == "RT-S3");
        CHECK(code_of([&] { storage::BulkFile{path}; }) == "RT-S3");
        CHECK(!storage::in_use(path));
        const storage::FileUse use(path);
    }
}
