// SPDX-License-Identifier: Apache-2.0
#include "../files.hpp"
#include "../thrown.hpp"

#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/layout/checked_file.hpp>
#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/checkpoint/layout/shard_plan.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/checkpoint/store/user_files.hpp>
#include <rtrain/format/checksummed_json.hpp>
#include <rtrain/run/make_way.hpp>
#include <rtrain/storage/local.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace rtrain;
using test::code_of;

TEST_CASE("Json.numbers_keep_their_bits") {
    std::mt19937_64 random(1);
    for (int i = 0; i < 20000; ++i) {
        const double value = std::bit_cast<double>(random());
        if (std::isfinite(value)) {
            CHECK(json::parse(json::serialize(value)).to_number<double>() == value);
        }
    }
    CHECK(json::serialize(
              {{"a", std::nan("")}, {"b", {1, std::numeric_limits<double>::infinity()}}}) ==
          R"({"a":null,"b":[1,"inf"]})");
    CHECK_THROWS_AS((void)json::parse("{\"a\":1"), std::invalid_argument);
    CHECK_THROWS_AS((void)json::parse("{} x"), std::invalid_argument);
    CHECK(json::parse(R"({"s":"a\nb","n":[true,false,null,-3,18446744073709551615]})") ==
          boost::json::value(
              {{"s", "a\nb"}, {"n", {true, false, nullptr, -3, 18446744073709551615U}}}));
}

TEST_CASE("Crc32c.is_the_standard_one") {
    CHECK(checkpoint::crc32c("123456789") == 0xE3069283);
    CHECK(checkpoint::crc32c("") == 0);
    std::mt19937_64 random(3);
    std::string bytes(5 * checkpoint::ChunkSums::chunk + 1234, '\0');
    for (auto& byte : bytes) {
        byte = static_cast<char>(random());
    }
    checkpoint::ChunkSums whole;
    checkpoint::ChunkSums pieces;
    whole.add(bytes.data(), bytes.size());
    for (std::size_t i = 0; i < bytes.size();) {
        const std::size_t part = std::min<std::size_t>(bytes.size() - i, 1 + random() % 800'000);
        pieces.add(&bytes[i], part);
        i += part;
    }
    const auto sums = whole.finish();
    CHECK(sums == pieces.finish());
    REQUIRE(sums.size() == 6);
    for (std::size_t i = 0; i < sums.size(); ++i) {
        const auto chunk = std::string_view(bytes).substr(i * checkpoint::ChunkSums::chunk,
                                                          checkpoint::ChunkSums::chunk);
        CHECK(sums[i] == checkpoint::crc32c(chunk));
        CHECK(sums[i] == ~checkpoint::crc::by_tables(~0U, chunk.data(), chunk.size()));
    }
}

TEST_CASE("SealedJson.finds_every_change") {
    for (const Config& object : {Config{}, Config{{"a", 1}, {"b", {{"c", "crc32c"}}}}}) {
        const std::string good = checkpoint::with_checksum(object);
        CHECK(checkpoint::parse_checked(good) == object);
        for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
            std::string bad = good;
            bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
            CAPTURE(bad);
            CHECK_THROWS_AS((void)checkpoint::parse_checked(bad), std::invalid_argument);
        }
        for (std::size_t size = 0; size < good.size(); ++size) {
            CHECK_THROWS_AS((void)checkpoint::parse_checked(good.substr(0, size)),
                            std::invalid_argument);
        }
    }
}

TEST_CASE("ShardPlan.every_element_once_in_equal_shares") {
    std::mt19937 random(5);
    for (int trial = 0; trial < 2000; ++trial) {
        std::vector<checkpoint::TensorSize> tensors(random() % 8);
        std::int64_t total = 0;
        for (auto& tensor : tensors) {
            tensor = {random() % 5 == 0 ? 0 : static_cast<std::int64_t>(random() % 1000),
                      std::int64_t{1} << (random() % 4)};
            total += tensor.elements * tensor.element_bytes;
        }
        const int ranks = 1 + static_cast<int>(random() % 6);
        std::vector<std::int64_t> next(tensors.size());
        std::vector<int> owners(tensors.size());
        for (int rank = 0; rank < ranks; ++rank) {
            std::int64_t mine = 0;
            for (const auto& slice : checkpoint::plan_shards(tensors, rank, ranks)) {
                CHECK(slice.begin == next[slice.tensor]);
                next[slice.tensor] += slice.count;
                mine += slice.count * tensors[slice.tensor].element_bytes;
                ++owners[slice.tensor];
            }
            CHECK(mine <= total / ranks + total / ranks / 32 + 16);
        }
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            CHECK(next[i] == tensors[i].elements);
            CHECK(owners[i] >= 1);
            CHECK((tensors[i].elements > 0 || owners[i] == 1));
        }
    }
    using Slices = std::vector<checkpoint::Slice>;
    const std::vector<checkpoint::TensorSize> nearly{{100000, 4}, {200, 4}, {100000, 4}};
    CHECK(
        (checkpoint::plan_shards(nearly, 0, 2) == Slices{{0, 0, 100000}, {1, 0, 200}})); // not cut
    CHECK((checkpoint::plan_shards(nearly, 1, 2) == Slices{{2, 0, 100000}}));
}

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

TEST_CASE("Manifest.contradictions_are_errors") {
    checkpoint::Manifest good{
        .index = 3,
        .ranks = 2,
        .metrics = {{"a", 1}},
        .contents = {{{"x", 5, {1}}, {"y", 1 << 21, {1, 2}}},
                     {{"t", {"F32", {4, 2}, false, {{"y", 3, 5}, {"x", 0, 3}}}}}}};
    const auto code = [](const checkpoint::Manifest& manifest) {
        return code_of([&] { (void)checkpoint::parse_manifest(manifest_text(manifest)); });
    };
    CHECK(code(good).empty());
    const auto parsed = checkpoint::parse_manifest(manifest_text(good));
    CHECK(parsed.index == 3);
    CHECK(parsed.ranks == 2);
    CHECK(parsed.metrics == good.metrics);
    CHECK((parsed.contents.files == good.contents.files));
    CHECK(parsed.contents.tensors.at("t").pieces[0].file == "x"); // in order
    const auto with = [&](auto change) {
        checkpoint::Manifest bad = good;
        change(bad.contents.files, bad.contents.tensors.at("t"));
        return code(bad);
    };
    CHECK(with([](auto& files, auto&) { files[0].name = "../x"; }) == "RT-K2");
    CHECK(with([](auto& files, auto&) { files[0].name = "/etc/passwd"; }) == "RT-K2");
    CHECK(with([](auto& files, auto&) { files[0].name = "y"; }) == "RT-K2");
    CHECK(with([](auto& files, auto&) { files[0].sums.clear(); }) == "RT-K2");
    CHECK(with([](auto& files, auto&) { files[1].size = ~std::uint64_t{0}; }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) { tensor.pieces[0].file = "z"; }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) { tensor.pieces[0].begin = 2; }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) { tensor.pieces[0].count = 4; }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) { tensor.pieces[0].count = -1; }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) { tensor.pieces.clear(); }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) { tensor.shape = {-4, -2}; }) == "RT-K2");
    CHECK(with([](auto&, auto& tensor) {
              tensor.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
          }) == "RT-K2");
    CHECK(code_of([] { (void)checkpoint::parse_manifest(R"({"format":"other"})"); }) == "RT-K1");
    CHECK(code_of([] {
              (void)checkpoint::parse_manifest(
                  checkpoint::with_checksum({{"format", "rtrain-checkpoint"}, {"version", 3}}));
          }) == "RT-K1");
}

TEST_CASE("Contents.of_ranks_make_a_whole_or_an_error") {
    using checkpoint::Contents;
    const auto merged = [](Contents a, const Contents& b) {
        return code_of([&] { checkpoint::merge(a, b); });
    };
    const Contents first{{{"a", 0, {}}}, {{"t", {"F32", {4}, false, {{"a", 0, 2}}}}}};
    CHECK(merged(first, {{{"b", 0, {}}}, {{"t", {"F32", {4}, false, {{"b", 2, 2}}}}}}).empty());
    CHECK(merged(first, {{{"a", 0, {}}}, {}}) == "RT-K5");
    CHECK(merged(first, {{}, {{"t", {"F64", {4}, false, {{"b", 2, 2}}}}}}) == "RT-K10");
    CHECK(merged(first, {{}, {{"t", {"F32", {5}, false, {{"b", 2, 2}}}}}}) == "RT-K10");
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

namespace {

/// A storage service, which has no rename: here, in a local directory.
struct Service : storage::Local {
    /// The next call of this name for a path that ends so fails.
    struct Fault {
        std::string call, end;
        bool transient = false;
    };
    std::shared_ptr<Fault> fault = std::make_shared<Fault>();

    void write(const std::string& path, std::string_view text) const {
        meet("write", path);
        Local::write(path, text);
    }
    void remove(const std::string& path) const {
        meet("remove", path);
        Local::remove(path);
    }
    void upload(const std::filesystem::path& local, const std::string& path) const {
        meet("upload", path);
        Local::upload(local, path);
    }
    [[nodiscard]] bool exists(const std::string& path) const {
        meet("exists", path);
        return Local::exists(path);
    }
    [[nodiscard]] std::string read(const std::string& path) const {
        meet("read", path);
        return Local::read(path);
    }

private:
    void meet(const std::string& call, const std::string& path) const {
        if (fault->call == call && path.ends_with(fault->end)) {
            fault->call = "";
            if (fault->transient) {
                throw TransientStorageError("RT-S11", "no answer");
            }
            throw StorageError("RT-S10", "refused");
        }
    }
};

/// A run on a service, with several attempts.
struct Remote {
    test::Directory directory;
    Service service{};
    std::filesystem::path run = directory.path() / "run";

    explicit Remote(const std::string& name) : directory(name) {}

    [[nodiscard]] storage::Location at() const {
        return {storage::AnyFilesystem(service), run.string()};
    }
    /// As an attempt begins.
    [[nodiscard]] std::unique_ptr<checkpoint::Store> begin(const std::string& attempt) const {
        std::filesystem::create_directories(run);
        test::write(run / checkpoint::Staging::attempt_file, attempt);
        auto store = std::make_unique<checkpoint::Store>(
            checkpoint::Staging(at(), attempt, directory.path() / attempt, {}), CheckpointConfig{});
        store->open();
        return store;
    }
    [[nodiscard]] bool has(const std::string& path) const {
        return std::filesystem::exists(run / path);
    }
};

/// As rank 0 does it alone.
checkpoint::Contents stage(const checkpoint::Store& store, const std::string& name,
                           const std::string& text) {
    store.staging().stage(name, 0);
    checkpoint::CheckedFile out(store.staging().directory_of(name, 0), "file");
    out.write(text);
    return {{out.finish()}, {}};
}

void commit_remotely(checkpoint::Store& store, const std::string& name) {
    const auto contents = stage(store, name, name);
    store.staging().hand_in(name, 0, contents);
    store.commit(name, 1, contents, {});
}

} // namespace

TEST_CASE("Attempt.one_that_was_taken_for_dead_leaves_the_next_ones_checkpoints_alone") {
    const Remote remote("attempts");
    auto old = remote.begin("old");
    commit_remotely(*old, "first");
    const auto contents = stage(*old, "best", "of the old one");

    auto next = remote.begin("next");
    commit_remotely(*next, "best");
    (void)stage(*next, "unfinished", "");
    const auto& staging = old->staging();
    CHECK(code_of([&] { staging.hand_in("best", 0, contents); }) == "RT-S16");
    CHECK(code_of([&] { old->commit("best", 1, contents, {}); }) == "RT-S16");
    CHECK(code_of([&] { staging.stage("another", 0); }) == "RT-S16");
    CHECK(!remote.has("another"));
    CHECK(code_of([&] { staging.remove("first"); }) == "RT-S16");
    CHECK(code_of([&] { old->conclude("first", {}); }) == "RT-S16");
    CHECK(code_of([&] { old->open(); }) == "RT-S16");
    CHECK(remote.has("unfinished"));
    staging.give_up("best", 0);
    staging.give_up("unfinished", 0);
    CHECK(remote.has("unfinished"));
    CHECK(checkpoint::verify(remote.run / "first").index == 0);
    CHECK(checkpoint::verify(remote.run / "best").index == 1);
}

TEST_CASE("Attempt.ranks_lists_are_those_of_their_own_attempt") {
    const Remote remote("lists");
    const auto old = remote.begin("old");
    const auto next = remote.begin("next");
    (void)stage(*next, "best", "");
    next->staging().stage("best", 1);
    next->staging().hand_in("best", 1, {});
    old->staging().hand_in_failure("best", 1, std::runtime_error("late"));
    CHECK(code_of([&] { (void)next->staging().collect("best", 2, {}, {}); }).empty());
}

TEST_CASE("Attempt.numbers_of_uploads_that_may_go_on_are_not_used_again") {
    const Remote remote("numbers");
    auto old = remote.begin("old");
    commit_remotely(*old, old->next_name(""));
    (void)stage(*old, old->next_name(""), "");
    CHECK(remote.has("checkpoint_000001"));
    const auto next = remote.begin("next");
    CHECK(!remote.has("checkpoint_000001"));
    CHECK(next->next_name("") == "checkpoint_000002");
}

TEST_CASE("Attempt.numbers_stay_used_however_often_the_run_starts") {
    const Remote remote("numbers-stay");
    auto first = remote.begin("first");
    commit_remotely(*first, first->next_name(""));
    (void)stage(*first, first->next_name(""), "");
    (void)remote.begin("second"); // sweeps, and ends before it saves anything
    auto third = remote.begin("third");
    CHECK(third->next_name("") == "checkpoint_000002");
    CHECK(remote.has(".last_checkpoint_number"));
    commit_remotely(*third, third->next_name(""));
    CHECK(remote.begin("fourth")->next_name("") == "checkpoint_000003");
    CHECK(!remote.has(".last_checkpoint_number"));
}

TEST_CASE("Store.what_arrives_after_its_checkpoint_was_given_up_is_swept") {
    const Remote remote("late");
    auto store = remote.begin("attempt");
    const std::string name = store->next_name("");
    const auto contents = stage(*store, name, "text");
    store->staging().hand_in(name, 0, contents);
    store->give_up(name, 0); // as the saver does when it throws
    CHECK(!remote.has(name + "/file"));
    CHECK(store->next_name("") == "checkpoint_000001"); // a late file must not replace one of these
    test::write(remote.run / name / "file", "late");
    const auto next = remote.begin("next");
    CHECK(next->listing().damaged.empty());
    CHECK(!remote.has(name));
    CHECK(next->next_name("") == "checkpoint_000001");
}

TEST_CASE("Store.a_rank_that_cannot_say_that_it_failed_keeps_its_error") {
    const Remote remote("unsaid");
    const auto old = remote.begin("old");
    old->staging().stage("best", 1);
    *remote.service.fault = {"write", "list-old-1"};
    old->staging().hand_in_failure("best", 1, std::runtime_error("full")); // does not throw
    CHECK(remote.service.fault->call.empty());
    (void)remote.begin("next");
    old->staging().hand_in_failure("other", 1, std::runtime_error("full"));
    CHECK(!remote.has("other")); // which is another attempt's name now
    // What such a process has left earlier is no checkpoint that is damaged.
    std::filesystem::create_directories(remote.run / "checkpoint_000004");
    test::write(remote.run / "checkpoint_000004/.rtrain-list-old-1", "x");
    CHECK(remote.begin("third")->listing().damaged.empty());
    CHECK(!remote.has("checkpoint_000004"));
}

TEST_CASE("Store.a_directory_on_a_service_that_is_reported_twice_is_read_each_time") {
    const Remote remote("twice-remote");
    auto store = remote.begin("attempt");
    std::filesystem::create_directories(remote.run / "own/deep");
    const storage::Location own{storage::AnyFilesystem(remote.service),
                                (remote.run / "own").string()};
    for (const std::string text : {"one", "two", "two", "longer"}) {
        test::write(remote.run / "own/deep/file", text);
        store->commit_in_place("own", checkpoint::contents_in_place(own), {});
        const Checkpoint committed = store->checkpoint("own");
        CHECK(test::read(committed.as_directory() / "deep/file") == text); // and keeps its copy
        CHECK(code_of([&] { (void)checkpoint::verify(remote.run / "own"); }).empty());
        CHECK(store->listing().committed.size() == 1);
    }
}

TEST_CASE("Store.what_fails_behind_the_commit_leaves_the_checkpoint") {
    const Remote remote("behind");
    auto store = remote.begin("attempt");
    const auto committed = [&](const Service::Fault& fault) {
        const std::string name = store->next_name("");
        const auto contents = stage(*store, name, name);
        store->staging().hand_in(name, 0, contents);
        *remote.service.fault = fault;
        const std::string code = code_of([&] { store->commit(name, 1, contents, {}); });
        store->staging().give_up(name, 0); // as the saver does when it throws
        CHECK(remote.service.fault->call.empty());
        CHECK(code_of([&] { (void)checkpoint::verify(remote.run / name); }).empty());
        CHECK(store->listing().committed.back().name == name);
        return code;
    };
    CHECK(committed({"write", "/latest"}) == "RT-S10");
    CHECK(committed({"remove", "/.rtrain-uploading"}).empty());
    CHECK(remote.has("checkpoint_000001/.rtrain-uploading"));
    CHECK(remote.begin("next")->listing().committed.size() == 2);
    CHECK(!remote.has("checkpoint_000001/.rtrain-uploading"));
}

TEST_CASE("MakeWay.a_copy_within_a_service_is_retried") {
    const Remote remote("make-way");
    std::filesystem::create_directories(remote.run / "deep" / "empty");
    test::write(remote.run / "a", "1");
    test::write(remote.run / "deep" / "b", "2");
    *remote.service.fault = {"upload", "b", true};
    const std::string kept = (remote.directory.path() / "kept").string();
    rtrain::detail::copy_directory(remote.at().filesystem, remote.at().path, kept,
                                   {.first_backoff_s = 0});
    CHECK(remote.service.fault->call.empty());
    CHECK(test::read(remote.directory.path() / "kept" / "a") == "1");
    CHECK(test::read(remote.directory.path() / "kept" / "deep" / "b") == "2");
}

TEST_CASE("Store.a_deletion_that_was_cut_off_is_ended_by_the_next_start") {
    const Remote remote("cut-off");
    auto store = remote.begin("attempt");
    commit_remotely(*store, "checkpoint_000000");
    *remote.service.fault = {"remove", "/checkpoint_000000"};
    CHECK(code_of([&] { store->staging().remove("checkpoint_000000"); }) == "RT-S10");
    CHECK(remote.has("checkpoint_000000/file"));
    CHECK(remote.begin("next")->listing().damaged.empty());
    CHECK(!remote.has("checkpoint_000000"));
}

TEST_CASE("Store.what_cannot_be_read_now_is_not_damaged") {
    const Remote remote("now");
    auto store = remote.begin("attempt");
    commit_remotely(*store, "best");
    store->conclude("best", {.status = CheckpointStatus::validated});
    for (const char* const file : {"/manifest.json", "/.validation.json"}) {
        for (const char* const call : {"exists", "read"}) {
            CAPTURE(file);
            CAPTURE(call);
            *remote.service.fault = {call, file, true};
            CHECK(code_of([&] { (void)checkpoint::list_checkpoints(remote.at()); }) == "RT-S11");
        }
    }
    *remote.service.fault = {"exists", "/.validation.json"};
    const auto listing = checkpoint::list_checkpoints(remote.at());
    CHECK(listing.damaged.empty());
    REQUIRE(listing.committed.size() == 1);
    CHECK((listing.committed[0].status() == CheckpointStatus::validation_failed));
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
