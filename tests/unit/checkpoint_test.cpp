// SPDX-License-Identifier: Apache-2.0
#include "../support.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <random>

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

TEST_CASE("Safetensors.every_type_and_shape_comes_back") {
    const test::Directory directory("safetensors");
    const auto file = directory.path() / "t.safetensors";
    checkpoint::safetensors::Tensors tensors;
    for (const auto& [type, name] : checkpoint::safetensors::types) {
        tensors.emplace("tensor." + std::string(name),
                        torch::randint(0, 2, {3, 5}).to(torch::TensorOptions(type)));
    }
    tensors.emplace("scalar", torch::tensor(3.5));
    tensors.emplace("empty", torch::empty({0, 4}));
    tensors.emplace("strided", torch::arange(12).view({3, 4}).t());
    checkpoint::safetensors::write(file, tensors);
    const auto loaded = checkpoint::safetensors::read(file);
    REQUIRE(loaded.size() == tensors.size());
    for (const auto& [name, tensor] : tensors) {
        CAPTURE(name);
        CHECK((loaded.at(name).scalar_type() == tensor.scalar_type()));
        CHECK(loaded.at(name).sizes() == tensor.sizes());
        CHECK(loaded.at(name).to(torch::kFloat).equal(tensor.to(torch::kFloat)));
    }
    CHECK(
        code_of([&] {
            checkpoint::safetensors::write(file, {{"c", torch::zeros({2}, torch::kComplexDouble)}});
        }) == "RT-K6");
}

TEST_CASE("Safetensors.damaged_files_are_errors") {
    const test::Directory directory("safetensors-damaged");
    const auto file = directory.path() / "t.safetensors";
    checkpoint::safetensors::write(file, {{"a", torch::arange(6)}, {"b", torch::ones({2, 2})}});
    const std::string good = test::read(file);
    for (std::size_t length = 0; length < good.size(); ++length) {
        CAPTURE(length);
        test::write(file, good.substr(0, length));
        CHECK(code_of([&] { (void)checkpoint::safetensors::read(file); }) == "RT-K2");
    }
    const auto with_header = [&](const std::string& header) {
        const std::uint64_t size = header.size();
        test::write(file, std::string(reinterpret_cast<const char*>(&size), 8) + header +
                              std::string(4, 'x'));
        return code_of([&] { (void)checkpoint::safetensors::read(file); });
    };
    CHECK(with_header(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})").empty());
    CHECK(with_header(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,5]}})") == "RT-K2");
    CHECK(with_header(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[4,0]}})") == "RT-K2");
    CHECK(with_header(R"({"a":{"dtype":"I8","shape":[-4],"data_offsets":[0,4]}})") == "RT-K2");
    CHECK(with_header(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[99,103]}})") == "RT-K2");
    CHECK(with_header(
              R"({"a":{"dtype":"I64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})") ==
          "RT-K2");
    CHECK(with_header(R"({"a":{"dtype":"Q4","shape":[4],"data_offsets":[0,4]}})") == "RT-K2");
    CHECK(with_header(R"({"a":{"shape":[4],"data_offsets":[0,4]}})") == "RT-K2");
    CHECK(with_header(R"([1,2])") == "RT-K2");
}

TEST_CASE("Manifest.finds_every_change") {
    const test::Directory directory("manifest");
    const auto path = directory.path() / "c";
    std::filesystem::create_directories(path / "deep");
    test::write(path / "a", "hello");
    test::write(path / "deep/b", std::string(3000, 'b'));
    checkpoint::write_manifest(path, {{"loss", 0.1}, {"nan", std::nan("")}});
    CHECK(checkpoint::verify(path).at("metrics").at("loss") == 0.1);

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
    std::filesystem::remove(path / "a");
    CHECK(code_of([&] { checkpoint::verify(path); }) == "RT-K2");
    CHECK(code_of([&] { checkpoint::verify(directory.path()); }) == "RT-K1");
}

namespace {

/// Commits a checkpoint with these metrics.
void commit(checkpoint::Store& store, const Config& metrics) {
    test::write(store.stage() / "file", "x");
    store.commit(metrics);
}

std::vector<std::int64_t> kept(const std::filesystem::path& run) {
    std::vector<std::int64_t> indices;
    for (const auto& item : checkpoint::Store::list(run)) {
        indices.push_back(item.index);
    }
    return indices;
}

} // namespace

TEST_CASE("Store.keeps_what_the_config_says") {
    const test::Directory directory("store");
    const auto run = [&](const std::string& name, const CheckpointConfig& config,
                         const std::vector<Config>& reports) {
        const auto path = directory.path() / name;
        std::filesystem::create_directories(path);
        checkpoint::Store store(path, config);
        store.open();
        for (const Config& metrics : reports) {
            commit(store, metrics);
        }
        return kept(path);
    };
    using Indices = std::vector<std::int64_t>;
    const auto scores = [](std::vector<double> values) {
        std::vector<Config> reports;
        for (const double value : values) {
            reports.push_back({{"score", value}, {"nested", {{"deep", {{"score", value}}}}}});
        }
        return reports;
    };
    CHECK(run("all", {}, scores({1, 2, 3})) == Indices{0, 1, 2});
    CHECK(run("newest", {.num_to_keep = 2}, scores({1, 2, 3, 4})) == Indices{2, 3});
    CHECK(run("max", {.num_to_keep = 2, .score_attribute = "score"}, scores({3, 2, 1, 0})) ==
          Indices{0, 1, 3});
    CHECK(run("min", {.num_to_keep = 1, .score_attribute = "score", .score_order = "min"},
              scores({3, 1, 2})) == Indices{1, 2});
    CHECK(run("nested", {.num_to_keep = 1, .score_attribute = "nested/deep/score"},
              scores({5, 1, 2})) == Indices{0, 2});
    CHECK(run("tie", {.num_to_keep = 1, .score_attribute = "score"}, scores({1, 1, 1, 0})) ==
          Indices{2, 3});
    CHECK(run("missing", {.num_to_keep = 1, .score_attribute = "score"},
              {Config{{"score", -5}}, Config{}, Config{}}) == Indices{0, 2});
}

TEST_CASE("Store.nan_score_is_an_error") {
    const checkpoint::Store store("unused", {.score_attribute = "a/b"});
    CHECK(code_of([&] { store.check_score({{"a", {{"b", std::nan("")}}}}); }) == "RT-K4");
    CHECK(code_of([&] { store.check_score({{"a", std::nan("")}}); }).empty());
}

TEST_CASE("Store.clears_what_a_crash_left") {
    const test::Directory directory("store-crash");
    checkpoint::Store store(directory.path(), {});
    store.open();
    commit(store, {});
    test::write(store.stage() / "half", "written");
    test::write(directory.path() / ".user", "file");
    checkpoint::Store again(directory.path(), {});
    again.open();
    CHECK(again.next_name() == "checkpoint_000001");
    CHECK(!std::filesystem::exists(again.staging_path()));
    CHECK(std::filesystem::exists(directory.path() / ".user"));
}

TEST_CASE("Checkpoint.directory_and_metadata") {
    const test::Directory directory("checkpoint");
    std::filesystem::create_directories(directory.path() / "from/deep");
    test::write(directory.path() / "from/deep/model", "weights");
    const auto checkpoint = Checkpoint::from_directory(directory.path() / "from");
    CHECK(checkpoint.metadata().empty());
    checkpoint.set_metadata({{"tokenizer", "v2"}});
    CHECK(checkpoint.metadata().at("tokenizer") == "v2");
    checkpoint.to_directory(directory.path() / "to/here");
    CHECK(test::read(directory.path() / "to/here/deep/model") == "weights");
    CHECK(Checkpoint(directory.path() / "to/here").metadata().at("tokenizer") == "v2");
    CHECK(code_of([] { (void)Checkpoint::from_directory("/nowhere/at/all"); }) == "RT-K1");
    CHECK(code_of([] { (void)Checkpoint("/nowhere").as_directory(); }) == "RT-K1");
}
