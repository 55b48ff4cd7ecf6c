// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"
#include "tar_bytes.hpp"

#include <rtrain/format/webdataset.hpp>
#include <rtrain/storage/file/file.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

using namespace rtrain;
using test::contains;
using test::error_of;
using test::tar_end;
using test::tar_file;

TEST_CASE("Tar.samples_are_files_of_one_key") {
    const std::string archive = tar_file("README", "no dot") + tar_file("__index__.txt", "d/01") +
                                tar_file("__meta__/a.json", "{}") +
                                tar_file("./__index__.txt", "d/01") + tar_file("d/01.cls", "7") +
                                tar_file("d/01.Seg.PNG", "x") + tar_file("__meta__", "") +
                                tar_file(".hidden.txt", "") + tar_file("d/._02.cls", "") +
                                tar_file("d.e/02.cls", "8") + tar_file("d/01.cls", "9") + tar_end;
    format::SampleReader samples{
        format::TarReader(archive.size(), [&](std::uint64_t at, std::size_t length) {
            return std::string_view(archive).substr(at, length);
        })};
    const auto first = samples.next();
    REQUIRE(first.has_value());
    CHECK(first->key == "d/01");
    REQUIRE(first->files.size() == 2);
    CHECK(first->files[1].field == "seg.png");
    CHECK(samples.next()->key == "d.e/02");
    const auto third = samples.next(); // a name that comes again later is another sample
    REQUIRE(third.has_value());
    CHECK(third->key == "d/01");
    CHECK_FALSE(samples.next().has_value());
    const std::string twice = tar_file("1.txt", "") + tar_file("1.TXT", "") + tar_end;
    format::SampleReader doubled{
        format::TarReader(twice.size(), [&](std::uint64_t at, std::size_t length) {
            return std::string_view(twice).substr(at, length);
        })};
    CHECK(contains(error_of([&] { static_cast<void>(doubled.next()); }), "twice"));
}

TEST_CASE("Tar.samples_may_have_names_with_underscores") {
    for (const char* const name : {"__a.txt", "a__.txt", "d/__a__.txt", "__.txt", "___/a.txt"}) {
        CHECK(format::split_sample_name(name).has_value());
    }
    for (const char* const name : {"./__a__.txt", "././__index__/a.txt"}) {
        CHECK_FALSE(format::split_sample_name(name).has_value());
    }
    CHECK(format::split_sample_name("./a.txt")->first == "./a");
}
