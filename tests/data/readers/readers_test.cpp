// SPDX-License-Identifier: Apache-2.0
// Data sets in files: text, JSON lines, tar archives and MDS shards, ours and those of others.
#include "support/thrown.hpp"

#include <rtrain/data/order/position.hpp>
#include <rtrain/data/readers/idx.hpp>
#include <rtrain/data/readers/json.hpp>
#include <rtrain/data/readers/mds.hpp>
#include <rtrain/data/readers/text.hpp>
#include <rtrain/data/readers/webdataset.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/testing/scratch.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>

#include <zlib.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace readers_test {

using namespace rtrain;
namespace fs = std::filesystem;
using test::contains;

namespace {

const fs::path fixtures = fs::path(RTRAIN_TEST_DATA) / "readers";

void write(const fs::path& path, std::string_view text) {
    std::ofstream(path, std::ios::binary) << text;
}

data::Batch all_of(const data::Dataset& dataset) {
    return dataset.rows(at::arange(dataset.size(), at::kLong));
}

std::vector<std::string> texts(const data::Batch& batch, std::string_view column) {
    std::vector<std::string> rows;
    for (std::int64_t row = 0; row < batch.size(); ++row) {
        rows.emplace_back(batch.ragged(column).text(row));
    }
    return rows;
}

/// The message of the error that reading all rows throws.
std::string error_of(const data::Dataset& dataset) {
    try {
        static_cast<void>(all_of(dataset));
    } catch (const DataError& error) {
        return error.what();
    }
    return "no error";
}

using Texts = std::vector<std::string>;

} // namespace

TEST_CASE("Readers.text_is_a_row_a_line_or_a_file") {
    const testing::ScratchDirectory scratch;
    write(scratch.path() / "b.txt", "third\n\nlast");
    write(scratch.path() / "a.txt", "\xEF\xBB\xBF"
                                    "first\r\nsecond\r\n");
    CHECK(texts(all_of(data::read_text(scratch.path())), "text") ==
          Texts{"first", "second", "third", "", "last"});
    const auto lines =
        data::read_text(scratch.path(), {.column = "line", .drop_blank = true, .block_bytes = 1});
    CHECK(lines.blocks() != nullptr);
    const data::Batch picked = lines.rows(at::tensor({3, 0, 2}, at::kLong));
    CHECK(texts(picked, "line") == Texts{"last", "first", "third"});
    CHECK(texts(all_of(data::read_text(scratch.path() / "b.txt", {.whole_files = true})), "text") ==
          Texts{"third\n\nlast"});
    CHECK(contains(error_of(data::read_text(scratch.path(), {.max_line_bytes = 5})),
                   "a.txt: line 2"));
    CHECK(contains(
        error_of(data::read_text(scratch.path(), {.whole_files = true, .max_line_bytes = 5})),
        "[RT-D30]"));
}

TEST_CASE("Readers.nothing_is_opened_before_it_is_read") {
    const testing::ScratchDirectory scratch;
    const fs::path later = scratch.path() / "later.json";
    const auto rows = data::read_json(later); // as in the process that only launches
    const auto text = data::read_text(later);
    const auto samples = data::read_webdataset(scratch.path() / "later.tar");
    const auto shards = data::read_mds((scratch.path() / "mds").string());
    write(later, "{\"x\": 1}\n");
    CHECK(rows.size() == 1);
    CHECK(text.size() == 1);
    CHECK(contains(error_of(samples), "[RT-D25]"));
    CHECK(contains(error_of(shards), "[RT-D25]"));
}

TEST_CASE("Readers.a_file_that_changes_is_noticed") {
    const testing::ScratchDirectory scratch;
    const fs::path path = scratch.path() / "a.txt";
    write(path, "one\ntwo\nthree\n");
    const auto lines = data::read_text(path, {.block_bytes = 1});
    CHECK(lines.size() == 3);
    SUBCASE("shorter") {
        write(path, "one\n");
    }
    SUBCASE("longer") {
        write(path, "one\ntwo\nthree\nfour\n");
    }
    SUBCASE("as long as it was") {
        const auto before = fs::last_write_time(path);
        write(path, "two\none\nthree\n");
        fs::last_write_time(path, before + std::chrono::seconds(1));
    }
    SUBCASE("gone") {
        fs::remove(path);
    }
    CHECK(contains(error_of(lines), "[RT-D29]"));
    CHECK(contains(error_of(lines), path.string()));
}

TEST_CASE("Readers.a_checkpoint_notices_rows_that_were_rewritten_in_as_many_bytes") {
    const testing::ScratchDirectory scratch;
    const fs::path path = scratch.path() / "rows";
    const auto change = [&](const fs::path& file, std::string_view from, std::string_view to) {
        std::string bytes = storage::read_file(file);
        bytes.replace(bytes.find(from), from.size(), to);
        write(file, bytes);
        fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
    };
    const auto is_noticed = [&](const auto& read, const fs::path& file, std::string_view from,
                                std::string_view to) {
        const data::Dataset before = read();
        data::Position saved{.samples = 2, .rows = before.size()};
        saved.digest = before.blocks()->digest();
        saved.content = before.blocks()->content();
        data::Position(saved).begin_pass(saved.rows, "", saved.digest, read().blocks()->content());
        change(file, from, to);
        const data::Dataset after = read();
        CHECK(after.blocks()->digest() == saved.digest);
        for (const data::Dataset& made :
             {after, after.map([](const data::Batch& row) { return row; }), after.repartition(2),
              after.union_with({after}), after.limit(2)}) {
            CHECK(made.blocks()->content() != 0);
        }
        try {
            saved.begin_pass(after.size(), "", after.blocks()->digest(), after.blocks()->content());
            FAIL("another content is taken for the same");
        } catch (const DataError& error) {
            CHECK(error.code() == "RT-D21");
            CHECK(contains(error.what(), "same number of rows, but different ones"));
        }
        saved.content = 0; // as in an older checkpoint
        saved.begin_pass(after.size(), "", after.blocks()->digest(), after.blocks()->content());
    };
    write(path, "one\ntwo\nthree\n");
    is_noticed([&] { return data::read_text(path); }, path, "two", "TWO");
    write(path, "{\"x\": 1}\n{\"x\": 2}\n{\"x\": 3}\n");
    is_noticed([&] { return data::read_json(path); }, path, "2", "4");
    fs::copy_file(fixtures / "samples.tar", path, fs::copy_options::overwrite_existing);
    is_noticed([&] { return data::read_webdataset(path); }, path, "sample 7", "sample 9");
    const fs::path shards = scratch.path() / "mds";
    fs::copy(fixtures / "mds", shards);
    const auto read_shards = [&] { return data::read_mds(shards.string()); };
    const std::string text(read_shards().take(4).ragged("text").text(3));
    REQUIRE(text.size() > 1);
    is_noticed(read_shards, shards / "shard.00000.mds", text, std::string(text.size(), 'x'));
}

TEST_CASE("Readers.json_columns_have_the_types_of_the_first_rows") {
    const testing::ScratchDirectory scratch;
    write(scratch.path() / "a.json",
          "{\"i\": 1, \"d\": 1, \"b\": true, \"t\": \"\u00e4\", \"l\": [1], \"r\": [1]}\r\n"
          "\n"
          "{\"d\": 0.5, \"i\": null, \"t\": null, \"b\": false, \"r\": [0.5, null], \"l\": []}\n"
          "{\"i\": -3, \"d\": null, \"b\": null, \"t\": \"xyz\"}");
    const data::Batch batch = all_of(data::read_json(scratch.path()));
    CHECK(batch["i"].equal(at::tensor({1, 0, -3}, at::kLong)));
    CHECK(batch.valid("i").equal(at::tensor({1, 0, 1}, at::kLong).to(at::kBool)));
    CHECK((batch["d"].scalar_type() == at::kDouble));
    CHECK(batch["d"][1].item<double>() == 0.5);
    CHECK(std::isnan(batch["d"][2].item<double>()));
    CHECK_FALSE(batch.valid("d").defined());
    CHECK(batch["b"].equal(at::tensor({1, 0, 0}, at::kLong).to(at::kBool)));
    CHECK(texts(batch, "t") == Texts{"\u00e4", "", "xyz"});
    CHECK(batch.valid("t").equal(at::tensor({1, 0, 1}, at::kLong).to(at::kBool)));
    CHECK(batch.ragged("l").values.equal(at::tensor({1}, at::kLong)));
    CHECK(batch.ragged("l").offsets.equal(at::tensor({0, 1, 1, 1}, at::kLong)));
    CHECK(batch.ragged("r")[1].size(0) == 2);
    CHECK((batch.ragged("r").values.scalar_type() == at::kDouble));
    // Blocks without null have no mask; together they have one.
    const auto small = data::read_json(scratch.path(), {.columns = {"t", "i"}, .block_bytes = 1});
    CHECK(small.blocks()->size() == 3);
    CHECK(all_of(small)["i"].equal(batch["i"]));
    CHECK(all_of(small).valid("i").equal(batch.valid("i")));
    CHECK(all_of(small).columns().size() == 1);
    CHECK_FALSE(small.rows(at::tensor({0}, at::kLong)).valid("i").defined());
}

TEST_CASE("Readers.json_rows_are_the_same_however_they_are_written") {
    const testing::ScratchDirectory scratch;
    // Of each, all rows but the first are tried as plain ones, with what JsonScanner knows and not.
    const std::string row =
        R"({"i": -7, "d": 0.1, "b": true, "t": "a b", "l": [1, 2], "r": [0.5, null, 3]})";
    const std::string same =
        R"({ "i" :-7,"d":1.0e-1,"b":true , "t":"a b","l":[1 ,2 ], "r":[5E-1,null,3.0]})";
    const std::string escaped =
        R"({"i": -7, "d": 0.10000000000000000555, "b": true, "t": "a b", "l": [1, 2],)"
        R"( "r": [0.5, null, 3]} )";
    const std::string other_order =
        R"({"r": [0.5, null, 3], "l": [1, 2], "t": "a b", "b": true, "d": 0.1, "i": -7})";
    const std::string twice =
        R"({"i": 1, "i": -7, "d": 0.1, "b": true, "t": "a b", "l": [1, 2], "r": [0.5, null, 3]})";
    const std::string parts_differ =
        R"({"i": -7, "d": 0.1, "b": true, "t": "a b", "l": [1, 2.5], "r": [0.5, null, 3]})";
    write(scratch.path() / "a.json", row + '\n' + row + '\n' + same + '\n' + escaped + '\n' + row +
                                         '\n' + parts_differ + '\n' + other_order + '\n' +
                                         other_order + '\n' + twice + '\n' + row + '\n' +
                                         R"({"d": null})" + '\n' + R"({"d": 0.1})" + '\n' + row);
    const auto rows =
        data::read_json(scratch.path(), {.schema_rows = 1, .on_error = data::OnError::skip});
    const data::Batch batch = all_of(rows);
    REQUIRE(batch.size() == 13);
    for (const std::int64_t at : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12}) {
        CAPTURE(at);
        CHECK(batch["i"][at].item<std::int64_t>() == -7);
        CHECK(batch["d"][at].item<double>() == 0.1);
        CHECK(batch["b"][at].item<bool>());
        CHECK(batch.ragged("t").text(at) == "a b");
        CHECK(batch.ragged("l")[at].equal(at::tensor({1, 2}, at::kLong)));
        CHECK(batch.ragged("r")[at][0].item<double>() == 0.5);
        CHECK(std::isnan(batch.ragged("r")[at][1].item<double>()));
        CHECK(batch.ragged("r")[at][2].item<double>() == 3);
    }
    CHECK(std::isnan(batch["d"][10].item<double>()));
    CHECK(batch["d"][11].item<double>() == 0.1);
    for (const std::int64_t at : {10, 11}) {
        CHECK_FALSE(batch.valid("t")[at].item<bool>());
        CHECK(batch.ragged("l")[at].size(0) == 0);
    }
    const auto some = all_of(data::read_json(scratch.path(), {.columns = {"t", "i"}}));
    CHECK(some["i"].equal(batch["i"]));
    CHECK(texts(some, "t") == texts(batch, "t"));
}

TEST_CASE("Readers.bad_json_rows_are_errors_or_skipped") {
    const testing::ScratchDirectory scratch;
    const fs::path path = scratch.path() / "a.json";
    const auto with = [&](const std::string& bad, data::JsonOptions options = {}) {
        std::string text;
        for (int row = 0; row < 40; ++row) {
            text += row == 30 ? bad + "\n" : "{\"x\": " + std::to_string(row) + "}\n";
        }
        write(path, text);
        options.block_bytes = 64;
        return data::read_json(path, options);
    };
    for (const std::string bad : {"{\"x\": 1", "nonsense", "[1]", "{\"x\": \"\xFF\"}"}) {
        CAPTURE(bad);
        CHECK(contains(error_of(with(bad)), "a.json, row 30 is not a JSON object"));
        CHECK(contains(error_of(with(bad)), "[RT-D32]"));
    }
    for (const std::string bad :
         {"{\"x\": \"text\"}", "{\"x\": 0.5}", "{\"x\": {}}", "{\"x\": [1]}",
          "{\"x\": 1, \"more\": 2}", "{\"x\": 18446744073709551615}"}) {
        CAPTURE(bad);
        CHECK(contains(error_of(with(bad)), "a.json, row 30: column \""));
        CHECK(contains(error_of(with(bad)), "[RT-D33]"));
    }
    CHECK(error_of(with("{\"x\": 1, \"more\": 2}", {.columns = {"x"}})) == "no error");
    CHECK(contains(error_of(with("{}", {.columns = {"y"}})), "column \"y\""));
    const auto skipping = with("nonsense", {.on_error = data::OnError::skip});
    for (int epoch = 0; epoch < 3; ++epoch) { // each counts once
        const data::Batch batch = all_of(skipping);
        REQUIRE(batch.size() == 40);
        CHECK(batch["x"][29].item<std::int64_t>() == 29);
        CHECK(batch["x"][31].item<std::int64_t>() == 31);
        const auto stand_in = batch["x"][30].item<std::int64_t>();
        CHECK((stand_in == 29 || stand_in == 31)); // of its block
    }
    CHECK(contains(error_of(with("nonsense", {.on_error = data::OnError::skip, .max_errors = 0})),
                   "[RT-D34]"));
}

TEST_CASE("Readers.bad_json_rows_leave_no_column_or_type_behind") {
    const testing::ScratchDirectory scratch;
    const fs::path path = scratch.path() / "a.json";
    write(path, "{\"x\": \"text\", \"more\": 1, \"bad\": {}}\n{\"x\": 1}\n{\"x\": 2}\n");
    const data::Batch batch = all_of(data::read_json(path, {.on_error = data::OnError::skip}));
    REQUIRE(batch.size() == 3);
    CHECK(batch.columns().size() == 1);
    CHECK(batch["x"][2].item<std::int64_t>() == 2);
}

TEST_CASE("Readers.json_integers_are_exact_or_errors_that_name_types") {
    const testing::ScratchDirectory scratch;
    const fs::path path = scratch.path() / "a.json";
    const auto read = [&](const std::string& text, data::JsonOptions options = {}) {
        write(path, text);
        return data::read_json(path, options);
    };
    using data::ValueType;
    for (const std::string text :
         {"{\"id\": 0.5}\n{\"id\": 9007199254740993}", "{\"id\": 9007199254740993}\n{\"id\": 0.5}",
          "{\"id\": 0.5}\n{\"id\": 1}\n{\"id\": -9007199254740993}",
          "{\"id\": 18446744073709551615}",
          "{\"id\": null}\n{\"id\": 123456789012345678901234567890}",
          "{\"id\": [0.5, 9007199254740993]}", "{\"id\": [1.5]}\n{\"id\": [9007199254740993]}"}) {
        CAPTURE(text);
        const bool is_list = contains(text, "[");
        for (const std::int64_t schema_rows : {1, 1000}) {
            const std::string error = error_of(read(text, {.schema_rows = schema_rows}));
            CHECK(contains(error, "[RT-D33]"));
            CHECK(contains(error, "column \"id\" has "));
            CHECK(contains(error, is_list ? ".types: int64_list" : ".types"));
        }
        CHECK(error_of(read(text, {.types = {{"id", is_list ? ValueType::float64_list
                                                            : ValueType::float64}}})) ==
              "no error");
    }
    const std::string exact = "{\"id\": 0.5}\n{\"id\": 9007199254740992}\n"
                              "{\"id\": 18446744073709551616}\n{\"id\": 1e300}";
    CHECK(all_of(read(exact))["id"][2].item<double>() == 18446744073709551616.0);
    const std::string ids = "{\"id\": 9007199254740993}\n{\"id\": 18446744073709551615}\n"
                            "{\"id\": 123456789012345678901234567890}\n{\"id\": \"x\"}\n"
                            "{\"id\": 100000000000000000000}";
    CHECK(texts(all_of(read(ids, {.types = {{"id", ValueType::text}}})), "id") ==
          Texts{"9007199254740993", "18446744073709551615", "123456789012345678901234567890", "x",
                "100000000000000000000"});
    CHECK(all_of(read("{\"id\": 9007199254740993}"))["id"].item<std::int64_t>() ==
          9007199254740993);
}

TEST_CASE("Readers.json_columns_may_be_given_types") {
    const testing::ScratchDirectory scratch;
    const fs::path path = scratch.path() / "a.json";
    write(path, "{\"a\": 1.0}\n{\"a\": 2, \"late\": [1]}\n{\"late\": null, \"b\": true}\n");
    using data::ValueType;
    // What a message advises, helps.
    CHECK(contains(error_of(data::read_json(path, {.schema_rows = 1})),
                   "column \"late\" is not in the first rows; give it a type with .types"));
    CHECK(contains(error_of(data::read_json(path, {.columns = {"late"}, .schema_rows = 1})),
                   "give it a type with .types"));
    const data::ValueTypes types{
        {"a", ValueType::int64}, {"b", ValueType::boolean}, {"late", ValueType::float64_list}};
    const data::Batch batch = all_of(data::read_json(path, {.schema_rows = 1, .types = types}));
    CHECK(batch["a"].equal(at::tensor({1, 2, 0}, at::kLong)));
    CHECK(batch.ragged("late").values.equal(at::tensor({1.0}, at::kDouble)));
    CHECK(batch.valid("b").equal(at::tensor({0, 0, 1}, at::kLong).to(at::kBool)));
    const auto late =
        data::read_json(path, {.columns = {"late"}, .schema_rows = 1, .types = types});
    CHECK(all_of(late).columns().empty());
    CHECK(contains(error_of(data::read_json(path, {.types = {{"a", ValueType::boolean},
                                                             {"b", ValueType::boolean},
                                                             {"late", ValueType::int64_list}}})),
                   "expected a boolean, as set in .types"));
}

TEST_CASE("Readers.webdataset_columns_may_be_keys_and_have_types") {
    const testing::ScratchDirectory scratch;
    const auto archive = [&](const std::string& name, const std::string& cls,
                             const std::string& json) {
        const fs::path directory = scratch.path() / name;
        fs::create_directories(directory);
        write(directory / "1.cls", cls);
        write(directory / "1.json", json);
        write(directory / "__index__.txt", "1");
        const std::string tar = (scratch.path() / (name + ".tar")).string();
        REQUIRE(std::system(
                    ("tar --sort=name -C " + directory.string() + " -cf " + tar + " .").c_str()) ==
                0); // names begin with "./"
        return tar;
    };
    using data::ValueType;
    const std::string one =
        archive("one", "007", R"({"box": {"x": 1}, "id": 18446744073709551615, "w": 3})");
    const std::string error = error_of(data::read_webdataset(one));
    CHECK(contains(error, "column \"box\" has an object"));
    CHECK_FALSE(contains(error, "JsonOptions"));
    const data::Batch batch =
        all_of(data::read_webdataset(one, {.columns = {"cls", "json.w", "json.id", "json.late"},
                                           .types = {{"cls", ValueType::text},
                                                     {"json.id", ValueType::text},
                                                     {"json.late", ValueType::int64}}}));
    REQUIRE(batch.size() == 1);
    CHECK(batch.ragged("cls").text(0) == "007");
    CHECK(batch.ragged("json.id").text(0) == "18446744073709551615");
    CHECK(batch["json.w"].item<std::int64_t>() == 3);
    CHECK_FALSE(batch.valid("json.late").item<bool>());
    CHECK(contains(error_of(data::read_webdataset(one, {.columns = {"json.none"}})),
                   "no column \"json.none\""));
    CHECK(contains(error_of(data::read_webdataset(one, {.columns = {"json.id"}})), ".types"));
    const std::string half = archive("half", "0.5", R"({"id": 1})");
    CHECK(contains(error_of(data::read_webdataset(half)), ".types"));
    CHECK(all_of(data::read_webdataset(half, {.types = {{"cls", ValueType::float64}}}))["cls"]
              .item<double>() == 0.5);
    CHECK(contains(error_of(data::read_webdataset(half, {.types = {{"cls", ValueType::boolean}}})),
                   "[RT-D36]"));
    // An archive that is packed is named so.
    REQUIRE(std::system(("gzip " + half).c_str()) == 0);
    const std::string packed = error_of(data::read_webdataset(half + ".gz"));
    CHECK(contains(packed, "half.tar.gz is compressed by gzip"));
    CHECK(contains(packed, "[RT-D31]"));
    fs::create_directory(scratch.path() / "archives");
    fs::rename(half + ".gz", scratch.path() / "archives" / "half.tar.gz");
    CHECK(contains(error_of(data::read_webdataset(scratch.path() / "archives")),
                   "archives/half.tar.gz"));
}

TEST_CASE("Readers.packed_text_is_unpacked") {
    const testing::ScratchDirectory scratch;
    const auto gzip = [&](const std::string& name, const std::string& text, const char* mode) {
        const gzFile out = gzopen((scratch.path() / name).c_str(), mode);
        REQUIRE(gzwrite(out, text.data(), static_cast<unsigned>(text.size())) ==
                static_cast<int>(text.size()));
        REQUIRE(gzclose(out) == Z_OK);
    };
    std::string many;
    for (int i = 0; i < 300'000; ++i) {
        many += "{\"x\": " + std::to_string(i) + "}\n";
    }
    gzip("a.json.gz", many, "wb");
    gzip("a.json.gz", "{\"x\": 300000}\n", "ab"); // another member
    // A frame of zstd with a block that is not packed, and one of zeros that is skipped.
    const std::string text = "{\"x\": -1}\n";
    std::string frame("\x28\xB5\x2F\xFD\x20", 5);
    frame += static_cast<char>(text.size());
    frame += static_cast<char>(text.size() << 3 | 1);
    frame += std::string(2, '\0') + text;
    write(scratch.path() / "b.JSON.ZST", frame + frame);
    write(scratch.path() / "c.json", "{\"x\": -2}\n");
    const data::JsonOptions options{.files = {.endings = {".json"}}};
    const auto dataset = data::read_json(scratch.path(), options);
    const data::Batch batch = all_of(dataset);
    REQUIRE(batch.size() == 300'004);
    CHECK(batch["x"].slice(0, 0, 300'001).equal(at::arange(300'001)));
    CHECK(batch["x"].slice(0, 300'001).equal(at::tensor({-1, -1, -2}, at::kLong)));
    CHECK(all_of(data::read_text((scratch.path() / "b.JSON.ZST").string())).size() == 2);
    CHECK(texts(all_of(data::read_text((scratch.path() / "b.JSON.ZST").string(),
                                       {.whole_files = true})),
                "text") == Texts{text + text});
    // What unpacks to as many bytes as are unpacked at a time: two blocks of an "a".
    std::string full("\x28\xB5\x2F\xFD\xA0\x00\x00\x04\x00", 9);
    full += std::string("\x02\x00\x10", 3) + "a" + std::string("\x03\x00\x10", 3) + "a";
    write(scratch.path() / "full.txt.zst", full);
    CHECK(texts(all_of(data::read_text((scratch.path() / "full.txt.zst").string())), "text") ==
          Texts{std::string(1 << 18, 'a')});
    // Messages have the name that was given.
    gzip("bad.json.gz", "{\"x\": \"text\"}\n", "wb");
    CHECK(contains(error_of(data::read_json(scratch.path(), options)), "bad.json.gz, row 0"));
    const std::string whole = storage::read_file(scratch.path() / "a.json.gz");
    for (const std::string& damaged :
         {whole.substr(0, whole.size() / 2), whole + "more", frame.substr(0, frame.size() - 1)}) {
        write(scratch.path() / "d.txt.gz", damaged);
        const std::string error = error_of(data::read_text(scratch.path() / "d.txt.gz"));
        CHECK(contains(error, "d.txt.gz by "));
        CHECK(contains(error, "[RT-D31]"));
    }
    write(scratch.path() / "plain.txt.gz", "not packed");
    CHECK(texts(all_of(data::read_text(scratch.path() / "plain.txt.gz")), "text") ==
          Texts{"not packed"});
    write(scratch.path() / "unnamed", whole);
    CHECK(contains(error_of(data::read_text(scratch.path() / "unnamed")), "unnamed is compressed"));
}

TEST_CASE("Readers.directories_of_Hive_are_columns") {
    const testing::ScratchDirectory scratch;
    for (const std::string part :
         {"year=2023/of=a%20b", "year=2024/of=__HIVE_DEFAULT_PARTITION__"}) {
        fs::create_directories(scratch.path() / part);
        write(scratch.path() / part / "1.json", "{\"x\": 1}\n{\"x\": 2}\n");
    }
    const data::Batch batch = all_of(data::read_json(scratch.path()));
    CHECK(batch["year"].equal(at::tensor({2023, 2023, 2024, 2024}, at::kLong)));
    CHECK(texts(batch, "of") == Texts{"a b", "a b", "", ""});
    CHECK(batch.valid("of").equal(at::tensor({1, 1, 0, 0}, at::kLong).to(at::kBool)));
    CHECK(all_of(data::read_json(scratch.path(), {.columns = {"year", "x"}}))
              .ragged_columns()
              .empty());
    const std::string glob = (scratch.path() / "year=*" / "*" / "*.json").string();
    CHECK(all_of(data::read_json(glob))["year"].equal(batch["year"]));
    CHECK(all_of(data::read_text(scratch.path())).columns().front().first == "year");
    CHECK(all_of(data::read_json(scratch.path(), {.files = {.partitions = false}}))
              .columns()
              .size() == 1);
    write(scratch.path() / "2.json", "{\"x\": 1}\n");
    const std::string error = error_of(data::read_json(scratch.path()));
    CHECK(contains(error, "[RT-D108]"));
    CHECK(contains(error, ".partitions = false"));
}

TEST_CASE("Readers.an_index_of_another_file_is_made_anew") {
    const testing::ScratchDirectory scratch;
    const fs::path path = scratch.path() / "a.txt";
    const auto write_rows = [&](std::size_t length, std::size_t from, std::size_t to) {
        std::string text(2 << 20, '.');
        for (std::size_t at = 63; at < text.size(); at += 64) {
            text[at] = '\n';
        }
        for (std::size_t at = from + length; at < to; at += length + 1) {
            text[at] = '\n';
        }
        const bool is_new = !fs::exists(path);
        const auto time = is_new ? fs::file_time_type() : fs::last_write_time(path);
        write(path, text);
        if (!is_new) {
            fs::last_write_time(path, time); // as `cp -p` and archives have it
        }
    };
    const auto rows = [&] { return data::read_text(path).size(); };
    write_rows(63, 0, 0);
    CHECK(rows() == 32768);
    for (const auto& [from, to] :
         std::vector<std::pair<std::size_t, std::size_t>>{{0, 640},
                                                          {(2 << 20) - 640, 2 << 20},
                                                          {0, 2 << 20},
                                                          {1 << 20, (1 << 20) + (1 << 19)}}) {
        write_rows(31, from, to);
        CHECK(rows() > 32768);
        write_rows(63, 0, 0);
        CHECK(rows() == 32768);
    }
    // Where no sample shows it, reading does, and to start again helps.
    const std::size_t hidden = (1 << 20) + 64 * 80;
    write_rows(31, hidden, hidden + 128);
    if (rows() == 32768) {
        CHECK(contains(error_of(data::read_text(path)), "[RT-D29]"));
        CHECK(all_of(data::read_text(path)).size() > 32768);
    }
}

TEST_CASE("Readers.webdataset_reads_what_webdataset_wrote") {
    const auto samples = data::read_webdataset(fixtures, {.block_bytes = 6000});
    REQUIRE(samples.size() == 12);
    CHECK(samples.blocks()->size() > 2);
    const data::Batch batch = all_of(samples);
    for (std::int64_t row = 0; row < 12; ++row) {
        const std::string number = std::to_string(row);
        CHECK(batch["cls"][row].item<std::int64_t>() == row % 10);
        CHECK(batch["json.number"][row].item<std::int64_t>() == row);
        CHECK(batch["json.half"][row].item<double>() == static_cast<double>(row) / 2);
        CHECK(batch.ragged("txt").text(row) == "sample " + number + " \u00e4");
        CHECK(batch.ragged("bin").text(row) ==
              std::string(static_cast<std::size_t>(row), static_cast<char>(row)));
        CHECK(batch.ragged("__key__").text(row).ends_with("/0" + std::string(row < 10 ? "0" : "") +
                                                          number));
    }
    CHECK(batch.ragged("__key__").text(5).starts_with("deep/longlong"));
    const data::Batch some = data::read_webdataset(fixtures / "samples.tar", {.columns = {"cls"}})
                                 .rows(at::tensor({7, 2}, at::kLong));
    CHECK(some["cls"].equal(at::tensor({7, 2}, at::kLong)));
    CHECK(some.ragged_columns().size() == 1);
}

TEST_CASE("Readers.damaged_archives_are_errors") {
    const testing::ScratchDirectory scratch;
    const fs::path path = scratch.path() / "a.tar";
    const std::string sound = storage::read_file(fixtures / "samples.tar");
    write(path, sound.substr(0, sound.size() / 2));
    CHECK(contains(error_of(data::read_webdataset(path)), "[RT-D35]"));
    CHECK(contains(error_of(data::read_webdataset(path)), path.string()));
    std::string flipped = sound;
    const std::size_t header = sound.find("part/007.cls");
    flipped[header + 150] = static_cast<char>(flipped[header + 150] ^ 1); // of the checksum
    write(path, flipped);
    CHECK(contains(error_of(data::read_webdataset(path)),
                   "at byte " + std::to_string(header) + ": "));
    std::string no_number = sound;
    no_number[header + 512] = 'x';
    write(path, no_number);
    CHECK(contains(error_of(data::read_webdataset(path)),
                   "a.tar, row 7, sample \"part/007\": .cls: does not hold an integer"));
    CHECK(contains(error_of(data::read_webdataset(path)), "[RT-D36]"));
    const data::Batch skipped =
        all_of(data::read_webdataset(path, {.on_error = data::OnError::skip}));
    CHECK(skipped["cls"][7].item<std::int64_t>() == 6);
    CHECK(skipped.ragged("__key__").text(7) == "part/006");
    CHECK(contains(error_of(data::read_webdataset(fixtures, {.columns = {"jpg"}})), "no .jpg"));
}

TEST_CASE("Readers.mds_reads_what_streaming_wrote") {
    const auto rows = data::read_mds((fixtures / "mds").string(), {.block_bytes = 300});
    REQUIRE(rows.size() == 40);
    CHECK(rows.blocks()->size() > 4);
    const data::Batch batch = all_of(rows);
    CHECK(batch["grid"].sizes().vec() == std::vector<std::int64_t>{40, 2, 3});
    CHECK((batch["small"].scalar_type() == at::kByte));
    CHECK((batch["half"].scalar_type() == at::kHalf));
    CHECK((batch["grid"].scalar_type() == at::kShort));
    for (std::int64_t row = 0; row < 40; ++row) {
        CHECK(batch["label"][row].item<std::int64_t>() == row * 1'000'000'000 - 7);
        CHECK(batch["small"][row].item<std::int64_t>() == row);
        CHECK(batch["half"][row].item<double>() == static_cast<double>(row) / 2);
        CHECK(batch["real"][row].item<double>() == static_cast<double>(row) / 3);
        CHECK(batch["grid"][row][1][2].item<std::int64_t>() == 5 + row);
        CHECK(batch.ragged("text").text(row) == "row " + std::to_string(row) + " \u00e4");
        CHECK(batch.ragged("raw").text(row) ==
              std::string(static_cast<std::size_t>(row % 5), static_cast<char>(row)));
    }
    const data::Batch some =
        data::read_mds((fixtures / "mds").string(), {.columns = {"small", "text"}})
            .rows(at::tensor({39, 3}, at::kLong));
    CHECK(some["small"].equal(at::tensor({39, 3}, at::kByte)));
    CHECK(some.columns().size() == 1);
}

TEST_CASE("Readers.damaged_shards_are_errors") {
    CHECK(contains(error_of(data::read_mds((fixtures / "mds-zstd").string())), "[RT-D38]"));
    const testing::ScratchDirectory scratch;
    const auto with = [&](const std::string& shard, data::MdsOptions options = {}) {
        fs::copy(fixtures / "mds", scratch.path(),
                 fs::copy_options::recursive | fs::copy_options::overwrite_existing);
        write(scratch.path() / "shard.00001.mds", shard);
        return error_of(data::read_mds(scratch.path().string(), options));
    };
    const std::string sound = storage::read_file(fixtures / "mds" / "shard.00001.mds");
    CHECK(with(sound) == "no error");
    CHECK(contains(with(sound.substr(0, sound.size() - 1)), "shard.00001.mds"));
    CHECK(contains(with(sound.substr(0, sound.size() - 1)), "[RT-D37]"));
    CHECK(contains(with(sound, {.columns = {"none"}}), "[RT-D38]"));
    std::string count = sound;
    count[0] = static_cast<char>(count[0] ^ 1);
    CHECK(contains(with(count), "number of samples"));
    std::string size = sound; // of the first sample's "raw"
    std::uint32_t first = 0;
    std::memcpy(&first, sound.data() + 4, 4);
    size[first] = 100;
    CHECK(contains(with(size), "shard.00001.mds, row 0: "));
}

TEST_CASE("Readers.files_without_read_at_are_read_from_a_copy") {
    /// Holds files in memory, without read_at().
    struct Memory {
        std::shared_ptr<std::string> text;
        std::vector<storage::Entry> list(const std::string&) {
            return {{.name = "a.txt", .size = text->size()}};
        }
        std::string read(const std::string&) { throw StorageError("RT-S4", "a whole file"); }
        void write(const std::string&, std::string_view) {}
        void upload(const fs::path&, const std::string&) {}
        void download(const std::string&, const fs::path& local) {
            storage::replace_file(local, *text);
        }
        void remove(const std::string&) {}
        bool exists(const std::string&) { return true; }
    };
    const Memory memory{std::make_shared<std::string>("one\ntwo\n")};
    storage::register_scheme("readers", [=](const storage::Uri& uri, const auto&) {
        return storage::Location{storage::AnyFilesystem(memory, "readers"),
                                 uri.authority + uri.path};
    });
    CHECK(texts(all_of(data::read_text("readers://team/a.txt")), "text") == Texts{"one", "two"});
}

TEST_CASE("Readers.plain_idx_files_are_kept_once_a_node") {
    const testing::ScratchDirectory scratch;
    std::string file("\0\0\x08\x03\0\0\x01\x90\0\0\0\x40\0\0\0\x40", 16); // 400 x 64 x 64
    const std::string data = testing::noise(400 * 64 * 64, 3);
    file += data;
    const fs::path plain = scratch.path() / "images";
    const fs::path packed = scratch.path() / "images.gz";
    write(plain, file);
    const gzFile out = gzopen(packed.c_str(), "wb1");
    REQUIRE(gzwrite(out, file.data(), static_cast<unsigned>(file.size())) > 0);
    REQUIRE(gzclose(out) == Z_OK);
    // Pages of a file, which the system keeps once, rather than of this process.
    const auto mapped_file = [](const at::Tensor& tensor) -> std::string {
        std::ifstream maps("/proc/self/maps");
        const auto place = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
        for (std::string line; std::getline(maps, line);) {
            std::uintptr_t begin = 0;
            std::uintptr_t end = 0;
            if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2 && place >= begin &&
                place < end) {
                const auto slash = line.find('/');
                return slash == std::string::npos ? "" : line.substr(slash);
            }
        }
        return "";
    };
    const auto is_right = [&](const at::Tensor& tensor) {
        return tensor.sizes().vec() == std::vector<std::int64_t>{400, 64, 64} &&
               std::memcmp(tensor.const_data_ptr(), data.data(), data.size()) == 0;
    };
    const at::Tensor from_plain = data::idx::read(plain, 3);
    CHECK(is_right(from_plain));
    CHECK(mapped_file(from_plain) == fs::canonical(plain).string());
    CHECK(is_right(data::idx::read(packed, 3))); // unpacked, in memory
    CHECK(mapped_file(data::idx::read(packed, 3)).empty());
    from_plain.zero_(); // the writer's own
    CHECK(is_right(data::idx::read(plain, 3)));
}

TEST_CASE("Readers.idx_files_of_another_data_set_are_not_taken_for_the_same") {
    const testing::ScratchDirectory scratch;
    const auto open = [&](const std::string& name, std::string_view pixels, std::string_view sizes,
                          std::string_view classes) {
        const fs::path images = scratch.path() / (name + "-images");
        const fs::path labels = scratch.path() / (name + "-labels");
        write(images,
              std::string("\0\0\x08\x03\0\0\0\2", 8) + std::string(sizes) + std::string(pixels));
        write(labels, std::string("\0\0\x08\x01\0\0\0\2", 8) + std::string(classes));
        return data::idx_images(images, labels);
    };
    const std::string_view wide("\0\0\0\1\0\0\0\2", 8);
    const std::string_view high("\0\0\0\2\0\0\0\1", 8);
    const data::Dataset one = open("one", "abcd", wide, "12");
    CHECK(one.content() != 0);
    CHECK(open("copy", "abcd", wide, "12").content() == one.content());
    const fs::path kept = scratch.path() / "kept";
    const auto same = [](const data::Batch& batch) { return batch; };
    CHECK(one.map(same).materialize(kept).size() == 2);
    for (const data::Dataset& other :
         {open("pixels", "abcD", wide, "12"), open("labels", "abcd", wide, "13"),
          open("shape", "abcd", high, "12")}) {
        CHECK(other.content() != one.content());
        CHECK(contains(error_of(other.map(same).materialize(kept)), "[RT-D52]"));
    }
}

} // namespace readers_test
