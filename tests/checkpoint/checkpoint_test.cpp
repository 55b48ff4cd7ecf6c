// SPDX-License-Identifier: Apache-2.0
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/store/user_files.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <filesystem>

using namespace rtrain;
using test::code_of;

TEST_CASE("Checkpoint.directory_and_metadata") {
    const test::Directory directory("checkpoint");
    std::filesystem::create_directories(directory.path() / "from/deep");
    test::write(directory.path() / "from/deep/model", "weights");
    const auto checkpoint = Checkpoint::from_directory(directory.path() / "from");
    CHECK(checkpoint.metadata().empty());
    checkpoint.set_metadata({{"tokenizer", "v2"}});
    CHECK(checkpoint.metadata().at("tokenizer") == "v2");
    checkpoint.update_metadata({{"tokenizer", "v3"}, {"by", "me"}});
    CHECK(checkpoint.metadata() == Config{{"tokenizer", "v3"}, {"by", "me"}});
    checkpoint.set_metadata({{"tokenizer", "v2"}});
    checkpoint.to_directory(directory.path() / "to/here");
    CHECK(test::read(directory.path() / "to/here/deep/model") == "weights");
    CHECK(Checkpoint(directory.path() / "to/here").metadata().at("tokenizer") == "v2");
    const auto copied = checkpoint.to_directory();
    CHECK(test::contains(copied.string(), "checkpoint_tmp_"));
    CHECK(test::read(copied / "deep/model") == "weights");
    std::filesystem::remove_all(copied);
    test::write(directory.path() / "from/.metadata.json", "{\"tokenizer\":\"v2\"}");
    CHECK(code_of([&] { (void)checkpoint.metadata(); }) == "RT-K2");
    CHECK(code_of([] { (void)Checkpoint::from_directory("/nowhere/at/all"); }) == "RT-K1");
    CHECK(code_of([] { (void)Checkpoint("/nowhere").as_directory(); }) == "RT-K1");
}
