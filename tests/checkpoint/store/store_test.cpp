// SPDX-License-Identifier: Apache-2.0
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/checkpoint/layout/checked_file.hpp>
#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/checkpoint/store/user_files.hpp>
#include <rtrain/storage/local.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace rtrain;
using test::code_of;

namespace {

checkpoint::Store store_in(const std::filesystem::path& run, const CheckpointConfig& config) {
    std::filesystem::create_directories(run);
    return {checkpoint::Staging({storage::Local{}, run.string()}, "attempt", {}, {}), config};
}

/// Commits a checkpoint with these metrics and files.
void commit(checkpoint::Store& store, const Config& metrics,
            const std::vector<std::string>& files = {"file"}, const std::string& wished = "") {
    const std::string name = store.next_name(wished);
    store.staging().stage(name, 0);
    const auto directory = store.staging().directory_of(name, 0);
    checkpoint::Contents contents;
    for (const std::string& file : files) {
        std::filesystem::create_directories((directory / file).parent_path());
        checkpoint::CheckedFile out(directory, file);
        out.write(std::string(3000, 'x'));
        contents.files.push_back(out.finish());
    }
    store.commit(name, 1, contents, metrics);
}

std::vector<std::int64_t> kept(const std::filesystem::path& run) {
    std::vector<std::int64_t> indices;
    for (const auto& item :
         checkpoint::list_checkpoints({storage::Local{}, run.string()}).committed) {
        indices.push_back(item.index);
    }
    return indices;
}

} // namespace

TEST_CASE("Manifest.finds_every_change") {
    const test::Directory directory("manifest");
    auto store = store_in(directory.path(), {});
    commit(store, {{"loss", 0.1}, {"nan", std::nan("")}}, {"a", "deep/b"});
    const auto path = directory.path() / "checkpoint_000000";
    const auto manifest = checkpoint::verify(path);
    CHECK(manifest.metrics.at("loss") == 0.1);
    CHECK(manifest.metrics.at("nan").is_null());
    REQUIRE(manifest.contents.files.size() == 2);

    std::mt19937 random(7);
    for (const auto* name : {"a", "deep/b", "manifest.json"}) {
        const std::string good = test::read(path / name);
        for (int i = 0; i < 200; ++i) {
            std::string bad = good;
            const auto place = random() % bad.size();
            bad[place] = static_cast<char>(bad[place] ^ (1 << (random() % 8)));
            test::write(path / name, bad);
            CAPTURE(name);
            CAPTURE(place);
            const std::string code = code_of([&] { checkpoint::verify(path); });
            CHECK((code == "RT-K2" || code == "RT-K1"));
        }
        test::write(path / name, good.substr(0, good.size() - 1));
        CHECK(!code_of([&] { checkpoint::verify(path); }).empty());
        test::write(path / name, good);
    }
    CHECK(code_of([&] { checkpoint::verify(path); }).empty());
    std::filesystem::rename(path / "a", directory.path() / "elsewhere");
    CHECK(code_of([&] { checkpoint::verify(path); }) == "RT-K2");
    std::filesystem::create_symlink(directory.path() / "elsewhere", path / "a");
    CHECK(code_of([&] { checkpoint::verify(path); }) == "RT-K2");
    CHECK(code_of([&] { checkpoint::verify(directory.path()); }) == "RT-K1");
}

TEST_CASE("Store.keeps_what_the_config_says") {
    const test::Directory directory("store");
    const auto run = [&](const std::string& name, const CheckpointConfig& config,
                         const std::vector<Config>& reports) {
        auto store = store_in(directory.path() / name, config);
        store.open();
        for (const Config& metrics : reports) {
            commit(store, metrics);
        }
        return kept(directory.path() / name);
    };
    using Indices = std::vector<std::int64_t>;
    const auto scores = [](std::vector<double> values) {
        std::vector<Config> reports;
        for (const double value : values) {
            reports.push_back({{"score", value},
                               {"nested", {{"deep", {{"score", value}}}, {"a/b", value}}},
                               {"x/y", {{"z", value}}}});
        }
        return reports;
    };
    CHECK(run("all", {}, scores({1, 2, 3})) == Indices{0, 1, 2});
    CHECK(run("newest", {.num_to_keep = 2}, scores({1, 2, 3, 4})) == Indices{2, 3});
    CHECK(run("max", {.num_to_keep = 2, .score_attribute = "score"}, scores({3, 2, 1, 0})) ==
          Indices{0, 1, 3});
    CHECK(run("min", {.num_to_keep = 1, .score_attribute = "score", .score_order = "min"},
              scores({3, 1, 2})) == Indices{1, 2});
    for (const char* attribute : {"nested/deep/score", "nested/a/b", "x/y/z"}) {
        CHECK(run("nested", {.num_to_keep = 1, .score_attribute = attribute}, scores({5, 1, 2})) ==
              Indices{0, 2});
        std::filesystem::remove_all(directory.path());
    }
    CHECK(run("tie", {.num_to_keep = 1, .score_attribute = "score"}, scores({1, 1, 1, 0})) ==
          Indices{2, 3});
    CHECK(run("missing", {.num_to_keep = 1, .score_attribute = "score"},
              {Config{{"score", -5}}, Config{}, Config{}}) == Indices{0, 2});
    const double nan = std::nan("");
    CHECK(run("nan", {.num_to_keep = 2, .score_attribute = "score", .score_order = "min"},
              scores({nan, 3, 7, 5})) == Indices{1, 3});
    CHECK(run("nan_max", {.num_to_keep = 1, .score_attribute = "score"},
              scores({-1e300, nan, nan})) == Indices{0, 2});
    const double infinity = std::numeric_limits<double>::infinity();
    CHECK(run("infinite", {.num_to_keep = 1, .score_attribute = "score", .score_order = "min"},
              scores({-infinity, 3, 5})) == Indices{1, 2});
    CHECK(run("infinite_max", {.num_to_keep = 1, .score_attribute = "score"},
              scores({infinity, -3, -5})) == Indices{1, 2});
}

TEST_CASE("Store.does_not_delete_what_is_in_use") {
    const test::Directory directory("store-use");
    auto store = store_in(directory.path(), {.num_to_keep = 1});
    store.open();
    commit(store, {});
    {
        const Checkpoint used(directory.path() / "checkpoint_000000");
        const Checkpoint copy = used;
        (void)copy.as_directory();
        commit(store, {});
        CHECK(kept(directory.path()) == std::vector<std::int64_t>{0, 1});
    }
    commit(store, {});
    CHECK(kept(directory.path()) == std::vector<std::int64_t>{2});
}

TEST_CASE("Store.names_and_the_latest_pointer") {
    const test::Directory directory("store-names");
    auto store = store_in(directory.path(), {});
    store.open();
    commit(store, {}, {"file"}, "after warm-up");
    CHECK(test::read(directory.path() / "latest") == "after warm-up\n");
    commit(store, {});
    CHECK(test::read(directory.path() / "latest") == "checkpoint_000001\n");
    CHECK(code_of([&] { (void)store.next_name("after warm-up"); }) == "RT-K9");
    for (const char* name : {"..", "a/b", ".hidden", "con", "a\nb"}) {
        CHECK(code_of([&] { (void)store.next_name(name); }) == "RT-K9");
    }
    CHECK(kept(directory.path()) == std::vector<std::int64_t>{0, 1});
}

TEST_CASE("Store.clears_what_a_crash_left") {
    const test::Directory directory("store-crash");
    auto store = store_in(directory.path(), {});
    store.open();
    commit(store, {});
    store.staging().stage("checkpoint_000001", 0);
    test::write(store.staging().directory_of("checkpoint_000001", 0) / "half", "written");
    test::write(directory.path() / ".user", "file");
    auto again = store_in(directory.path(), {});
    again.open();
    CHECK(again.next_name("") == "checkpoint_000001");
    CHECK(!std::filesystem::exists(again.staging().directory_of("checkpoint_000001", 0)));
    CHECK(std::filesystem::exists(directory.path() / ".user"));
    // A number is not used again, also when its checkpoint is damaged.
    std::filesystem::create_directory(directory.path() / "checkpoint_000007");
    again.open();
    CHECK(again.next_name("") == "checkpoint_000008");
    REQUIRE(again.listing().damaged.size() == 1);
    CHECK(again.listing().damaged[0].code.text() == "RT-K1");
}

TEST_CASE("Store.a_directory_that_is_reported_twice_is_one_checkpoint") {
    const test::Directory directory("twice");
    auto store = store_in(directory.path(), {.num_to_keep = 1});
    std::filesystem::create_directories(directory.path() / "own");
    test::write(directory.path() / "own/file", "text");
    for (int i = 0; i < 3; ++i) {
        store.commit_in_place("own",
                              {{checkpoint::record_of(directory.path() / "own", "file")}, {}}, {});
    }
    CHECK(kept(directory.path()) == std::vector<std::int64_t>{2});
    CHECK(store.listing().committed.size() == 1);
    commit(store, {});
    CHECK(!std::filesystem::exists(directory.path() / "own"));
}

TEST_CASE("Store.numbers_are_not_those_of_names_that_were_wished") {
    const test::Directory directory("wished");
    auto store = store_in(directory.path(), {});
    commit(store, {}, {"file"}, "checkpoint_000001");
    commit(store, {});
    CHECK(test::read(directory.path() / "latest") == "checkpoint_000002\n");
    commit(store, {}, {"file"}, "checkpoint_9223372036854775807");
    CHECK(store.next_name("") == "checkpoint_000004");
    CHECK(kept(directory.path()).size() == 3);
    CHECK(checkpoint::index_in("checkpoint_000007") == 7);
    for (const char* const name :
         {"checkpoint_", "checkpoint_-1", "checkpoint_+1", "checkpoint_ 1", "checkpoint_1x",
          "checkpoint_99999999999999999999", "Checkpoint_1"}) {
        CHECK(!checkpoint::index_in(name));
    }
    const checkpoint::Manifest last{.index = std::numeric_limits<std::int64_t>::max(),
                                    .ranks = 1,
                                    .metrics = {},
                                    .contents = {}};
    CHECK(code_of([&] { (void)checkpoint::parse_manifest(manifest_text(last)); }) == "RT-K2");
}
