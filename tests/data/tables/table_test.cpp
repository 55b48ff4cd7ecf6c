// SPDX-License-Identifier: Apache-2.0
// CSV and Parquet files, compared with what pyarrow reads from them.
#include "storage/services.hpp"

#include <rtrain/data/tables/arrow.hpp>
#ifdef RTRAIN_TEST_IMAGES
#include <rtrain/data/images/images.hpp>
#endif
#include <rtrain/format/safetensors.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>

#include <zlib.h>

#include <random>
#include <set>
#include <thread>

using rtrain::data::Batch;
using rtrain::data::CsvOptions;
using rtrain::data::CsvSource;
using rtrain::data::Dataset;
using rtrain::data::list_files;
using rtrain::data::ParquetOptions;
using rtrain::data::ParquetSource;
using rtrain::data::Paths;
using test::contains;

namespace {

namespace fs = std::filesystem;

/// What tables.py has written, once for all tests.
const fs::path& tables() {
    static const rtrain::testing::ScratchDirectory directory;
    static const bool is_written = [] {
        test::Child child({RTRAIN_TEST_PYTHON, RTRAIN_TEST_TABLES, directory.path().string()}, {});
        return child.wait() == 0;
    }();
    REQUIRE(is_written);
    return directory.path();
}

template <class Action>
std::string code_of(Action&& action) {
    return test::caught(std::forward<Action>(action)).code;
}

template <class Action>
std::string message_of(Action&& action) {
    return test::caught(std::forward<Action>(action)).text;
}

std::string table(const std::string& name) {
    return (tables() / name).string();
}

/// All blocks, in order.
Batch read_all(const Dataset::BlockSource& source) {
    std::vector<Batch> batches;
    for (std::size_t block = 0; block < source.blocks().size(); ++block) {
        batches.push_back(source.read(static_cast<std::int64_t>(block)));
        CHECK(batches.back().size() == source.blocks()[block].rows);
    }
    return rtrain::data::concatenate(batches);
}

Batch parquet_rows(const Paths& paths, const ParquetOptions& options = {}) {
    return read_all(ParquetSource(list_files(paths), options));
}

Batch csv_rows(const Paths& paths, const CsvOptions& options = {}) {
    return read_all(CsvSource(list_files(paths), options));
}

/// A file of a test's own.
class Text {
public:
    explicit Text(const std::string& text) { std::ofstream(path(), std::ios::binary) << text; }
    [[nodiscard]] std::string path() const { return (directory_.path() / "file.csv").string(); }

private:
    rtrain::testing::ScratchDirectory directory_;
};

bool same(const at::Tensor& a, const at::Tensor& b) {
    return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
           at::allclose(a, b, 0, 0, /*equal_nan=*/true);
}

/// Compares a batch with NAME.safetensors.
void check_expected(const Batch& batch, const std::string& name) {
    auto expected = rtrain::checkpoint::safetensors::read(table(name + ".safetensors"));
    std::set<std::string> seen;
    const auto check = [&](const std::string& column, const at::Tensor& values) {
        CAPTURE(column);
        REQUIRE(expected.contains(column));
        CHECK(same(values, expected.at(column)));
        seen.insert(column);
    };
    for (const auto& [column, values] : batch.columns()) {
        check(column, values);
    }
    for (const auto& [column, ragged] : batch.ragged_columns()) {
        check(column + ".values", ragged.values);
        check(column + ".offsets", ragged.offsets);
    }
    for (const auto& [column, mask] : batch.masks()) {
        check(column + ".valid", mask);
    }
    CHECK(seen.size() == expected.size());
}

} // namespace

TEST_CASE("Parquet.values_equal_pyarrows") {
    for (int number = 0; number < 12; ++number) {
        CAPTURE(number);
        const std::string name = "table-" + std::to_string(number);
        check_expected(parquet_rows(table(name + ".parquet")), name);
    }
}

TEST_CASE("Csv.values_equal_pyarrows") {
    for (int number = 0; number < 9; ++number) {
        CAPTURE(number);
        const std::string name = "rows-" + std::to_string(number);
        check_expected(csv_rows(table(name + ".csv"),
                                {.types = {{"count", arrow::int64()}, {"none", arrow::null()}}}),
                       name);
    }
    CHECK(CsvSource(list_files(table("rows-7.csv")), {}).blocks().size() > 1);
}

TEST_CASE("Parquet.columns_are_chosen_and_files_follow_each_other") {
    const Batch batch =
        parquet_rows({table("one"), table("other-order"), table("none")}, {.columns = {"b"}});
    CHECK(batch.columns().size() == 1);
    CHECK(same(batch["b"], at::tensor({1.5, 2.5, 1.5, 2.5}, at::kDouble)));
    const Batch all = parquet_rows({table("one"), table("other-order")});
    CHECK(same(all["a"], at::tensor({1, 2, 1, 2}, at::kLong)));

    const ParquetSource source(list_files(table("checked")), {});
    REQUIRE(source.blocks().size() == 10);
    CHECK(source.blocks()[3].rows == 100);
    CHECK(source.blocks()[3].bytes >= 100 * 8 + 700); // numbers and the bytes of "row 300"
    CHECK(contains(source.name_of(3), "checked, rows 300 to 399"));
    const Batch block = source.read(3);
    CHECK(block["x"][7].item<std::int64_t>() == 307);
    CHECK(block.ragged("text").text(7) == "row 307");
}

TEST_CASE("Parquet.blocks_are_read_by_several_threads") {
    const ParquetSource source(list_files(table("checked")), {});
    std::vector<std::thread> threads;
    std::array<bool, 4> is_right{};
    for (std::size_t number = 0; number < is_right.size(); ++number) {
        threads.emplace_back([&source, &right = is_right[number]] {
            right = true;
            for (std::int64_t block = 0; block < 10; ++block) {
                right = right && at::equal(source.read(block)["x"],
                                           at::arange(100 * block, 100 * (block + 1)));
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    CHECK(is_right == std::array{true, true, true, true});
}

TEST_CASE("Parquet.a_block_is_read_in_parts") {
    const auto* const memory = rtrain::detail::ArrowMemory::instance();
    const ParquetSource source(list_files(table("wide")), {});
    REQUIRE(source.blocks().size() == 1);
    const Batch whole = source.read(0);
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{123'456}, whole.size()}) {
        const auto before = memory->bytes_allocated();
        const auto cursor = source.open(0, first);
        std::int64_t row = first;
        std::int64_t most = 0;
        for (std::int64_t rows = 1;; rows = 3 * rows % 40'000) {
            const Batch part = cursor->next(rows);
            most = std::max(most, memory->bytes_allocated() - before);
            if (part.size() == 0) {
                break;
            }
            REQUIRE(part.size() <= rows);
            for (const auto& [name, column] : whole.columns()) {
                CHECK(at::equal(part[name], column.slice(0, row, row + part.size())));
            }
            row += part.size();
        }
        CHECK(row == whole.size());
        CHECK(cursor->next(1).size() == 0);
        CHECK(most < 8 * whole.size()); // the whole has 16 bytes a row
    }
    for (int number : {4, 5, 6, 10}) { // all types, several row groups
        CAPTURE(number);
        const std::string name = "table-" + std::to_string(number);
        const ParquetSource types(list_files(table(name + ".parquet")), {});
        std::vector<Batch> parts;
        for (std::size_t block = 0; block < types.blocks().size(); ++block) {
            const auto cursor = types.open(static_cast<std::int64_t>(block), 0);
            while (parts.emplace_back(cursor->next(13)).size() > 0) {
            }
            parts.pop_back();
        }
        check_expected(rtrain::data::concatenate(parts), name);
    }
}

TEST_CASE("Parquet.memory_belongs_to_the_batch") {
    const auto* const memory = rtrain::detail::ArrowMemory::instance();
    const auto before = memory->bytes_allocated();
    {
        Batch batch;
        at::Tensor row;
        {
            const ParquetSource source(list_files(table("wide")), {});
            batch = source.read(0);
            row = batch["x0"].slice(0, 5, 6).clone();
        }
        // The numbers are where Arrow has put them, and no copy of them is left.
        CHECK(memory->bytes_allocated() - before >= 4 * 4 * batch.size());
        CHECK(memory->bytes_allocated() - before < 5 * 4 * batch.size());
        CHECK(at::equal(batch["x0"].slice(0, 5, 6), row));
        batch["x0"].zero_(); // it may be written to
    }
    CHECK(memory->bytes_allocated() == before);
}

TEST_CASE("Parquet.a_flipped_byte_changes_no_value") {
    const std::string whole = rtrain::storage::read_file(table("checked"));
    const Batch expected = parquet_rows(table("checked"));
    const rtrain::testing::ScratchDirectory scratch;
    const std::string path = (scratch.path() / "flipped").string();
    const auto flipped = [&](std::size_t at) {
        std::string text = whole;
        text[at] = static_cast<char>(text[at] ^ (1 << (at % 8)));
        std::ofstream(path, std::ios::binary) << text;
        return message_of([&] {
            const Batch batch = parquet_rows(path);
            // No checksum covers what follows the pages; the file may then have other rows.
            CHECK((at > whole.size() * 9 / 10 || at::equal(batch["x"], expected["x"])));
        });
    };
    std::mt19937 random(1);
    int refused = 0;
    for (int i = 0; i < 300; ++i) {
        const std::size_t at = random() % whole.size();
        CAPTURE(at);
        const std::string message = flipped(at);
        refused += message.empty() ? 0 : 1;
        CHECK((message.empty() || contains(message, path)));
    }
    CHECK(refused > 150);
    const std::string message = flipped(200); // in a page of the first row group
    CHECK(contains(message, "column \"x\" of " + path + ", rows 0 to 99"));
    CHECK(contains(message, "RT-D40"));
}

TEST_CASE("Parquet.what_is_no_parquet_is_refused") {
    const std::string whole = rtrain::storage::read_file(table("checked"));
    CHECK(code_of([&] { parquet_rows(Text("x").path()); }) == "RT-D40");
    CHECK(code_of([&] { parquet_rows(Text(std::string(5000, '\0')).path()); }) == "RT-D40");
    for (const std::size_t size : {std::size_t{4}, whole.size() / 2, whole.size() - 1}) {
        CHECK(code_of([&] { parquet_rows(Text(whole.substr(0, size)).path()); }) == "RT-D40");
    }
    const Text cut(whole); // after it was opened
    const ParquetSource source(list_files(cut.path()), {});
    fs::resize_file(cut.path(), 100);
    CHECK(code_of([&] { static_cast<void>(source.read(9)); }) == "RT-D29");
}

TEST_CASE("Parquet.columns_that_do_not_fit_are_named") {
    const auto message = [](const Paths& paths, const ParquetOptions& options = {}) {
        return message_of([&] { parquet_rows(paths, options); });
    };
    const auto has = [](const std::string& text, std::initializer_list<std::string> parts) {
        CAPTURE(text);
        return std::ranges::all_of(parts, [&](auto& part) { return contains(text, part); });
    };
    CHECK(has(message(table("one"), {.columns = {"a", "z"}}),
              {"RT-D43", "\"z\"", "\"a\", \"b\"", "/one"}));
    CHECK(has(message(table("twice"), {.columns = {"a"}}), {"RT-D43", "several"}));
    CHECK(has(message({table("one"), table("other-type")}),
              {"RT-D44", "\"a\" is double in ", "/other-type", "int64 in ", "/one"}));
    CHECK(has(message({table("one"), table("other-width")}), {"RT-D44", "int32"}));
    CHECK(has(message({table("at-ms"), table("at-us")}),
              {"RT-D44", "\"a\" is timestamp[us] in ", "timestamp[ms] in "}));
    CHECK(has(message({table("at-ms"), table("one")}, {.columns = {"a"}}), {"RT-D44", "int64"}));
    CHECK(has(message({table("days-in-lists"), table("at-us-in-lists")}), {"RT-D44", "date32"}));
    CHECK(message({table("at-us"), table("at-us-utc")}).empty());
    CHECK(has(message({table("at-us"), table("duration-us")}), {"RT-D44", "duration[us]"}));
    CHECK(has(message({table("time-us"), table("at-us")}), {"RT-D44", "time64[us]"}));
    CHECK(has(message({table("time-us"), table("duration-us")}), {"RT-D44", "time64[us]"}));
    CHECK(has(message(table("rounded-decimals")), {"RT-D42", "9007199254740993"}));
    CHECK(message(table("decimals")).empty());
    CHECK(has(message({table("fewer"), table("one")}), {"RT-D44", "\"b\"", "/one"}));
    CHECK(has(message({table("more"), table("one")}), {"RT-D43", "\"c\"", "/one"}));
    CHECK(message({table("more"), table("one")}, {.columns = {"a", "b"}}).empty());
    CHECK(has(message(table("struct")), {"RT-D41", "\"s\"", "struct<x: int64>"}));
    CHECK(message(table("struct"), {.columns = {"a"}}).empty());
    CHECK(has(message(table("lists")), {"RT-D41", "\"l\"", "list<"}));
    CHECK(has(message(table("null-in-list")), {"RT-D42", "\"l\""}));
    CHECK(has(message(table("large")), {"RT-D42", "\"u\", row 1", "18446744073709551615"}));
}

TEST_CASE("Parquet.directories_of_Hive_are_columns") {
    const auto read = [](const ParquetOptions& options = {}) {
        return rtrain::data::read_parquet(table("hive"), options);
    };
    const Dataset all = read();
    const Batch rows = all.take(10);
    REQUIRE(rows.size() == 4);
    CHECK(same(rows["year"], at::tensor({2023, 2023, 2024, 2024}, at::kLong)));
    CHECK(same(rows["x"], rows["year"] * 10));
    CHECK(rows.ragged("kind").text(1) == "b c");
    const auto index = all.blocks();
    CHECK(same(index->source().open(3, 0)->next(1)["year"], at::tensor({2024}, at::kLong)));
    const Batch some = read({.columns = {"x", "kind"}}).take(10);
    CHECK(some.columns().size() == 1);
    CHECK(some.ragged("kind").text(2) == "a");
    const Batch none = read({.files = {.endings = {".parquet"}, .partitions = false}}).take(10);
    CHECK(none.columns().size() + none.ragged_columns().size() == 1);
    CHECK(code_of([&] { (void)read({.columns = {"year"}}).take(1); }) == "RT-D108");
    CHECK(code_of([&] {
              (void)rtrain::data::read_parquet({table("hive"), table("one")}).take(1);
          }) == "RT-D108");
    const Batch slash = parquet_rows(table("slash"));
    CHECK(same(slash["a/b"], at::tensor({1}, at::kLong)));
    CHECK(same(slash["a.b"], at::tensor({2}, at::kLong)));
    CHECK(same(slash.ragged("a").values, at::tensor({3}, at::kLong)));
}

TEST_CASE("Csv.numbers_are_exact_or_errors_that_name_types") {
    const auto error_of = [](const std::string& text, const CsvOptions& options = {}) {
        const Text file(text);
        return message_of([&] { csv_rows(file.path(), options); });
    };
    for (const std::string text :
         {"id\n1.5\n9007199254740993\n",   // with fractions
          "id\n18446744073709551615\n1\n", // beyond int64
          "id\n0.5\n-9007199254740993\n", "id\n123456789012345678901234567891\n"}) {
        CAPTURE(text);
        const std::string error = error_of(text);
        CHECK(contains(error, "RT-D50"));
        CHECK(contains(error, "\"id\", row "));
        CHECK(contains(error, ".types"));
        CHECK(error_of(text, {.types = {{"id", arrow::utf8()}}}).empty());
        CHECK(error_of(text, {.types = {{"id", arrow::float64()}}}).empty());
    }
    CHECK(error_of("id\n1.5\n9007199254740992\n").empty());
    CHECK(error_of("id\n1.5\n1e300\n123456789012345678.5\nNA\n").empty());
    CHECK(same(csv_rows(Text("id\n9007199254740993\n").path())["id"],
               at::tensor({9007199254740993}, at::kLong)));
    const Text skipped("id\n1.5\n9007199254740993\n2.5\n");
    CHECK(same(csv_rows(skipped.path(), {.on_error = rtrain::data::OnError::skip})["id"],
               at::tensor({1.5, 1.5, 2.5}, at::kDouble)));
}

TEST_CASE("Csv.timestamps_have_one_unit") {
    const std::int64_t second = 1'577'836'800'000'000'000; // 2020-01-01
    const Text whole("at\n2020-01-01 00:00:00\n");
    const Text fraction("at\n2020-01-01 00:00:00.000000001\n");
    const Text zone("at\n2020-01-01 01:00:00+01:00\n");
    CHECK(same(csv_rows(whole.path())["at"], at::tensor({second}, at::kLong)));
    const at::Tensor both = csv_rows({whole.path(), fraction.path()})["at"];
    CHECK(same(std::get<0>(both.sort()), at::tensor({second, second + 1}, at::kLong)));
    CHECK(same(csv_rows(zone.path())["at"], at::tensor({second}, at::kLong)));
    const auto years = [&](const CsvOptions& options) {
        return message_of([&] { csv_rows(Text("at\n1500-01-01 00:00:00\n").path(), options); });
    };
    CHECK(contains(years({}), "RT-D50"));
    CHECK(contains(years({}), ".types"));
    CHECK(years({.types = {{"at", arrow::timestamp(arrow::TimeUnit::SECOND)}}}).empty());
}

TEST_CASE("Csv.lines_are_skipped_and_numbers_have_commas") {
    const Text file("made by x, \"1\r\n\r\n# one, two\r\na;b\r\n# a comment; with ; more\r\n"
                    "1,5;\"#\r\n# text\"\r\n#;\r\n-2,25;#x\r\n#");
    const CsvOptions options{.delimiter = ';', .skip_rows = 2, .comment = '#', .decimal = ','};
    const Batch rows = csv_rows(file.path(), options);
    REQUIRE(rows.size() == 2);
    CHECK(same(rows["a"], at::tensor({1.5, -2.25}, at::kDouble)));
    CHECK(rows.ragged("b").text(0) == "#\r\n# text");
    CHECK(rows.ragged("b").text(1) == "#x");
    const CsvOptions named{.names = {"n"}, .skip_rows = 1, .comment = '%'};
    CHECK(same(csv_rows(Text("% or not\n%\n1\n%2\n3").path(), named)["n"],
               at::tensor({1, 3}, at::kLong)));
    const CsvOptions bad{
        .types = {{"n", arrow::int64()}}, .on_error = rtrain::data::OnError::skip, .comment = '#'};
    CHECK(same(csv_rows(Text("n\n1\n#\nx\n#\n3\n").path(), bad)["n"],
               at::tensor({1, 1, 3}, at::kLong)));
    for (const CsvOptions& wrong : std::vector<CsvOptions>{{.skip_rows = -1},
                                                           {.comment = ','},
                                                           {.comment = '\n'},
                                                           {.decimal = ','},
                                                           {.decimal = '1'}}) {
        CHECK(code_of([&] { csv_rows(file.path(), wrong); }) == "RT-D51");
    }
}

TEST_CASE("Csv.packed_files_are_unpacked") {
    const rtrain::testing::ScratchDirectory directory;
    const std::string path = (directory.path() / "a.csv.gz").string();
    const gzFile out = gzopen(path.c_str(), "wb");
    gzwrite(out, "a,b\n1,x\n2,y\n", 12);
    gzclose(out);
    CHECK(
        same(rtrain::data::read_csv(directory.path()).take(2)["a"], at::tensor({1, 2}, at::kLong)));
    std::ofstream(directory.path() / "b.csv.gz") << "\x1f\x8b damaged";
    const std::string error =
        message_of([&] { (void)rtrain::data::read_csv(directory.path()).take(2); });
    CHECK(contains(error, "RT-D31"));
    CHECK(contains(error, "b.csv.gz by gzip"));
    std::filesystem::rename(path, directory.path() / "c.csv");
    CHECK(contains(message_of([&] {
                       (void)rtrain::data::read_csv((directory.path() / "c.csv").string()).take(2);
                   }),
                   "c.csv is compressed by gzip"));
}

TEST_CASE("Csv.options_say_what_the_file_has") {
    const Text plain("1;'a;b';x\n2;;y\n");
    const Batch batch = csv_rows(plain.path(), {.columns = {"n", "text"},
                                                .types = {{"n", arrow::float32()}},
                                                .names = {"n", "text", "more"},
                                                .delimiter = ';',
                                                .quote = '\'',
                                                .null_values = {"", "x"},
                                                .text_can_be_null = true});
    CHECK(batch.columns().size() + batch.ragged_columns().size() == 2);
    CHECK(same(batch["n"], at::tensor({1.0F, 2.0F})));
    CHECK(batch.ragged("text").text(0) == "a;b");
    CHECK(same(batch.valid("text"), at::tensor({1, 0}).to(at::kBool)));

    CHECK(csv_rows(Text("a\n\"x\n").path(), {.quote = 0}).ragged("a").text(0) == "\"x");
    const Text marked("\xef\xbb\xbf"
                      "a,b\r\n1,2\r\n3,4");
    CHECK(same(csv_rows(marked.path())["a"], at::tensor({1, 3}, at::kLong)));
    const Text order("b,a\n7,8\n");
    CHECK(csv_rows({marked.path(), order.path()})["a"].sum().item<std::int64_t>() == 1 + 3 + 8);
    CHECK(CsvSource(list_files(Text("a,b\n").path()), {}).blocks().empty());

    for (const CsvOptions& wrong : std::vector<CsvOptions>{{.delimiter = '"'},
                                                           {.delimiter = '\n'},
                                                           {.quote = '\r'},
                                                           {.max_row_bytes = 0},
                                                           {.types = {{"a", nullptr}}}}) {
        CHECK(code_of([&] { csv_rows(marked.path(), wrong); }) == "RT-D51");
    }
}

TEST_CASE("Csv.bad_rows_are_named") {
    const auto message = [](const std::string& text, const CsvOptions& options = {}) {
        const Text file(text);
        auto what = message_of([&] { csv_rows(file.path(), options); });
        CHECK(contains(what, file.path()));
        return what;
    };
    const auto has = [](const std::string& text, std::initializer_list<std::string> parts) {
        CAPTURE(text);
        return std::ranges::all_of(parts, [&](auto& part) { return contains(text, part); });
    };
    std::string rows = "a,b\n";
    for (int row = 1; row <= 100'000; ++row) {
        rows += std::to_string(row) + ",2\n";
    }
    // Far behind the first block, whose rows say what the types are.
    CHECK(has(message(rows + "x,2\n"), {"RT-D50", "column \"a\", row 100000", "'x'", "int64"}));
    CHECK(has(message(rows + "1,2.5\n"), {"RT-D50", "column \"b\", row 100000", "'2.5'"}));
    CHECK(has(message(rows + "\n\n1\n"), {"RT-D49", "row 100000", "has 1 values; expected 2"}));
    CHECK(has(message(rows + "1,2,3\n"), {"RT-D49", "row 100000", "has 3 values"}));
    CHECK(has(message(rows + "1,\"2\n3,4\n"), {"RT-D46", "row 100000", "quote"}));
    CHECK(has(message(rows + std::string("1,\0002\n", 5)), {"RT-D48", "row 100000", "NUL"}));
    CHECK(has(message(rows + std::string("1,\"\000\"\n", 6)), {"RT-D48", "row 100000"}));
    CHECK(has(message(rows + "1," + std::string(5000, '2') + "\n", {.max_row_bytes = 4096}),
              {"RT-D47", "row 100000", "4096"}));
    CHECK(has(message(rows + "1,\"2\n" + rows, {.max_row_bytes = 4096}), {"RT-D47", "quote"}));
    CHECK(has(message("a,b\n1,2\n\xff\xfe,2\n", {.types = {{"a", arrow::utf8()}}}),
              {"RT-D50", "column \"a\", row 1", "UTF8"}));
    CHECK(has(message("a,b\n1,2\n1,2,3\n"), {"RT-D49", "row 1"})); // in the first block, too
    CHECK(has(message("\n\r\n\n"), {"RT-D45"}));
    CHECK(has(message("\xff\xfe"
                      "a"),
              {"RT-D48", "UTF-16"}));
    CHECK(has(message("a,a\n1,2\n"), {"RT-D43", "several"}));
    CHECK(has(message("a,b\n1,2\n", {.columns = {"c"}}), {"RT-D43", "\"c\"", "\"a\", \"b\""}));
    CHECK(has(message("a\n1\n", {.types = {{"c", arrow::int64()}}}), {"RT-D43", "\"c\""}));
    CHECK(has(message("a\n1\n", {.types = {{"a", arrow::struct_({})}}}), {"a"}));
}

TEST_CASE("Csv.bad_rows_are_skipped") {
    const auto skip = rtrain::data::OnError::skip;
    std::string text = "a,b\n";
    constexpr std::int64_t count = 100'000;
    const std::map<std::int64_t, std::string> bad{
        {0, "1"}, {1, "x,2"}, {70'000, "1,2,3"}, {70'001, "1,2.5"}, {99'999, "\"a\nb\",2"}};
    for (std::int64_t row = 0; row < count; ++row) {
        const auto found = bad.find(row);
        text += (found == bad.end() ? std::to_string(row) + ",2" : found->second) + '\n';
    }
    const Text file(text);
    const CsvOptions options{.types = {{"a", arrow::int64()}, {"b", arrow::int64()}},
                             .on_error = skip,
                             .max_errors = std::ssize(bad)};
    const CsvSource source(list_files(file.path()), options);
    CHECK(source.blocks().size() > 3);
    for (int epoch = 0; epoch < 3; ++epoch) { // each counts once
        const Batch batch = read_all(source);
        REQUIRE(batch.size() == count);
        at::Tensor expected = at::arange(count, at::kLong);
        expected.slice(0, 0, 2).fill_(2); // none is before them
        expected.slice(0, 70'000, 70'002).fill_(69'999);
        expected[99'999] = 99'998;
        CHECK(batch["a"].equal(expected));
        CHECK(batch["b"].equal(at::full({count}, 2, at::kLong)));
    }
    const auto code_with = [&](const Text& of, CsvOptions with) {
        return code_of([&] { csv_rows(of.path(), with); });
    };
    CsvOptions fewer = options;
    fewer.max_errors -= 1;
    CHECK(code_with(file, fewer) == "RT-D34");
    CHECK(code_with(Text("a,b\n1\n2\n"), {.on_error = skip}) == "RT-D34"); // none is good
    // What follows an open quote, or a NUL, is not known.
    CHECK(code_with(Text("a,b\n1,\"2\n3,4\n"), {.on_error = skip}) == "RT-D46");
    CHECK(code_with(Text("a,b\n1,2\n1,2,3\n"), {}) == "RT-D49");
    // A bad row among those that tell the types.
    const Batch few = csv_rows(Text("a,b\n1,2\n1,2,3\n5,6\n").path(), {.on_error = skip});
    CHECK(few["a"].equal(at::tensor({1, 1, 5}, at::kLong)));
}

TEST_CASE("Csv.a_file_that_changes_is_refused") {
    const Text file("a\n1\n2\n");
    const CsvSource source(list_files(file.path()), {});
    CHECK(source.read(0).size() == 2);
    std::ofstream(file.path(), std::ios::app) << "3\n";
    CHECK(code_of([&] { static_cast<void>(source.read(0)); }) == "RT-D29");
}

TEST_CASE("Tables.a_checkpoint_notices_other_rows_in_as_many_bytes") {
    const auto content_of = [](const auto& source) {
        return rtrain::data::BlockIndex(source).content();
    };
    const Text file("a\n1\n2\n");
    const auto csv = [&] {
        return content_of(std::make_shared<CsvSource>(list_files(file.path()), CsvOptions{}));
    };
    const auto before = csv();
    CHECK(before != 0);
    CHECK(csv() == before);
    std::ofstream(file.path(), std::ios::binary) << "a\n2\n1\n";
    fs::last_write_time(file.path(), fs::last_write_time(file.path()) + std::chrono::seconds(1));
    CHECK(csv() != before);

    const Text copy(rtrain::storage::read_file(table("table-0.parquet")));
    const auto parquet = [&] {
        return content_of(
            std::make_shared<ParquetSource>(list_files(copy.path()), ParquetOptions{}));
    };
    const auto of_table = parquet();
    CHECK(of_table != 0);
    std::fstream(copy.path(), std::ios::binary | std::ios::in | std::ios::out).seekp(100)
        << "other";
    CHECK(parquet() != of_table);
}

TEST_CASE("Csv.rows_are_cut_the_same_whatever_comes_at_once") {
    using rtrain::detail::CsvBlocks;
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
        CAPTURE(round);
        std::string text = "h\n";
        for (std::size_t i = random() % 200; i > 0; --i) {
            text += "ab,\"\"\n\r"[random() % 7];
        }
        text += "\",\"\n"; // closes what is open, or opens and closes
        const CsvBlocks::Format format{.block_bytes = 1 + random() % 40};
        const auto cut = [&](std::size_t most) {
            CsvBlocks blocks(format, "file", 0);
            for (std::size_t at = 0; at < text.size();) {
                const std::size_t bytes = 1 + random() % most;
                blocks.feed(std::string_view(text).substr(at, bytes));
                at += bytes;
            }
            std::vector<rtrain::data::FileBlock> found;
            const auto code = code_of([&] { found = blocks.finish(); });
            return std::pair(code, found);
        };
        const auto whole = cut(text.size());
        CHECK((cut(1) == whole));
        CHECK((cut(5) == whole));
        if (!whole.first.empty()) {
            continue; // a quote is open
        }
        // Arrow finds as many rows in each block as were counted.
        const auto rows_of = [](std::string part) {
            arrow::csv::ReadOptions read;
            read.use_threads = false;
            read.column_names = {"x"};
            auto parse = arrow::csv::ParseOptions::Defaults();
            parse.newlines_in_values = true;
            std::int64_t ragged = 0;
            parse.invalid_row_handler = [&](const auto&) {
                ++ragged;
                return arrow::csv::InvalidRowResult::Skip;
            };
            auto convert = arrow::csv::ConvertOptions::Defaults();
            convert.column_types["x"] = arrow::utf8();
            const auto reader =
                arrow::csv::TableReader::Make(arrow::io::default_io_context(),
                                              std::make_shared<arrow::io::BufferReader>(
                                                  arrow::Buffer::FromString(std::move(part))),
                                              read, parse, convert);
            return (*(*reader)->Read())->num_rows() + ragged;
        };
        std::uint64_t end = 2;
        for (const auto& block : whole.second) {
            CHECK(block.offset >= end);
            end = block.offset + block.bytes;
            CHECK(rows_of(text.substr(block.offset, block.bytes)) == block.rows);
        }
    }
}

TEST_CASE("Tables.are_read_from_s3_and_opened_by_who_reads_them") {
    ::setenv("AWS_ACCESS_KEY_ID", test::canary_id.c_str(), 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", test::canary_key.c_str(), 1);
    ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    test::Server server("s3");
    const auto parquet_set =
        rtrain::data::read_parquet(server.uri("bucket/parquet"), {.columns = {"x"}});
    const auto csv_set = rtrain::data::read_csv(server.uri("bucket/csv"));
    CHECK(server.count("GET", "/bucket") == 0); // nothing was looked at, nothing is there yet
    const auto [files, path] = rtrain::storage::locate(server.uri("bucket"));
    files.upload(table("checked"), path + "/parquet/a/1.parquet");
    files.upload(table("checked"), path + "/parquet/b/2.parquet");
    files.write(path + "/parquet/_SUCCESS", "");
    files.upload(table("rows-7.csv"), path + "/csv/rows.csv");

    CHECK(parquet_set.size() == 2000);
    CHECK(at::equal(parquet_set.rows(at::tensor({999, 1000, 1234}, at::kLong))["x"],
                    at::tensor({999, 0, 234}, at::kLong)));
    const Batch expected = csv_rows(table("rows-7.csv"));
    const Batch read = csv_set.rows(at::arange(csv_set.size()));
    CHECK(same(read["share"], expected["share"]));
    CHECK(same(read["day"], expected["day"]));

    CHECK(code_of([] { static_cast<void>(rtrain::data::read_csv("/nowhere").size()); }) ==
          "RT-D25");
}

TEST_CASE("Tables.a_service_that_fails_is_asked_again_or_named") {
    ::setenv("AWS_ACCESS_KEY_ID", test::canary_id.c_str(), 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", test::canary_key.c_str(), 1);
    ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    test::Server server("s3");
    const auto [files, path] = rtrain::storage::locate(server.uri("bucket"));
    files.upload(table("rows-7.csv"), path + "/csv/rows.csv");
    const auto read = [&](const std::string& name) {
        CsvOptions options;
        options.files.transfer = test::quick();
        options.files.transfer.attempts = 2;
        options.files.transfer.request_timeout_s = 0.3;
        return rtrain::data::read_csv(server.uri("bucket/csv/" + name), options);
    };
    const auto code = [&](const Dataset& dataset) { // of its first block
        return code_of([&] { static_cast<void>(dataset.rows(at::arange(3, at::kLong))); });
    };
    const Batch expected = csv_rows(table("rows-7.csv"));
    server.faults(R"("error_rate": 0.3, "error_status": 503, "only": "GET")");
    const Dataset opened = read("rows.csv");
    CHECK(same(opened.rows(at::arange(opened.size()))["share"], expected["share"]));
    CHECK(server.injected() > 0);
    CHECK(code(read("none.csv")) == "RT-D25"); // 404
    for (const char* const always :
         {R"("error_rate": 1, "error_status": 503)", R"("stall_rate": 1, "only": "GET")"}) {
        CAPTURE(always);
        server.faults(always);
        CHECK(code(opened).starts_with("RT-S"));
        CHECK(code(read("rows.csv")).starts_with("RT-S"));
    }
    server.faults("");
    CHECK(code(opened).empty()); // it is read again
    files.remove(path + "/csv/rows.csv");
    CHECK(code_of([&] {
              static_cast<void>(opened.rows(at::tensor({opened.size() - 1})));
          }).starts_with("RT-S"));
}

#ifdef RTRAIN_TEST_IMAGES
TEST_CASE("Tables.images_are_read_from_s3") {
    ::setenv("AWS_ACCESS_KEY_ID", test::canary_id.c_str(), 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", test::canary_key.c_str(), 1);
    ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    test::Server server("s3");
    const auto [files, path] = rtrain::storage::locate(server.uri("bucket"));
    const rtrain::testing::ScratchDirectory scratch;
    for (const auto& image : std::filesystem::directory_iterator(RTRAIN_TEST_IMAGES)) {
        for (const std::string name : {"b/one", "a/two", "b/three"}) {
            const auto file = name + image.path().extension().string();
            std::filesystem::create_directories((scratch.path() / file).parent_path());
            std::filesystem::copy_file(image.path(), scratch.path() / file);
            files.upload(image.path().string(), path + "/images/" + file);
        }
    }
    const rtrain::data::ImageOptions options{.size = {24, 32}};
    const auto images = rtrain::data::read_images(server.uri("bucket/images"), options);
    const auto local = rtrain::data::read_images(scratch.path(), options);
    REQUIRE(images.size() == 6);
    REQUIRE(local.size() == 6);
    const Batch read = images.rows(at::arange(6, at::kLong));
    const Batch expected = local.rows(at::arange(6, at::kLong));
    CHECK(at::equal(read["image"], expected["image"]));
    CHECK(at::equal(read["label"], expected["label"]));
    files.remove(path + "/images/b/one.jpg");
    CHECK(code_of([&] {
              static_cast<void>(images.rows(at::arange(6, at::kLong)));
          }).starts_with("RT-"));
}
#endif
