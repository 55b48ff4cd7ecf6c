// SPDX-License-Identifier: Apache-2.0
// What data::Streaming keeps in memory, of sets four times as large as memory_bytes. Each case has
// a process of its own: what malloc() has kept from another one would hide what it takes.
#include "support/status_bytes.hpp"

#include <rtrain/data/order/position.hpp>
#include <rtrain/data/order/streaming.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/data/tables/arrow.hpp>
#include <rtrain/testing/scratch.hpp>
#ifdef RTRAIN_TEST_IMAGES
#include <rtrain/data/images/images.hpp>
#endif

#include <doctest/doctest.h>

#include <arrow/array.h>
#include <arrow/builder.h>
#include <arrow/io/file.h>
#include <arrow/table.h>
#include <parquet/arrow/writer.h>

#include <ATen/Parallel.h>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <malloc.h>

using namespace rtrain;
namespace fs = std::filesystem;

namespace {

/// What does not grow with it (a thread's arena of malloc, a parser's buffers) is 3 MB with two
/// threads.
constexpr std::int64_t memory_bytes = std::int64_t{64} << 20;
constexpr std::int64_t columns = 10;
constexpr std::int64_t rows = 4 * memory_bytes / (8 * columns);

double value(std::int64_t row, std::int64_t column) {
    return static_cast<double>((row * 7919 + column * 104729) % 1'000'003) / 1000;
}

void write_csv(const fs::path& path, std::int64_t count) {
    std::ofstream file(path);
    for (std::int64_t column = 0; column < columns; ++column) {
        file << (column > 0 ? ",x" : "x") << column;
    }
    std::string line;
    for (std::int64_t row = 0; row < count; ++row) {
        line = '\n';
        for (std::int64_t column = 0; column < columns; ++column) {
            char text[32];
            const auto [end, error] = std::to_chars(text, text + 32, value(row, column));
            line.append(column > 0 ? "," : "").append(text, end);
        }
        file << line;
    }
}

void require(const arrow::Status& status) {
    if (!status.ok()) {
        throw std::runtime_error(status.ToString());
    }
}

/// Row groups of 4 MB, which are larger than a window.
void write_parquet(const fs::path& path, std::int64_t count) {
    constexpr std::int64_t group = 50'000;
    arrow::FieldVector fields;
    for (std::int64_t column = 0; column < columns; ++column) {
        fields.push_back(arrow::field("x" + std::to_string(column), arrow::float64()));
    }
    const auto schema = arrow::schema(fields);
    const auto file = arrow::io::FileOutputStream::Open(path).ValueOrDie();
    const auto writer =
        parquet::arrow::FileWriter::Open(*schema, arrow::system_memory_pool(), file).ValueOrDie();
    for (std::int64_t begin = 0; begin < count; begin += group) {
        arrow::ArrayVector arrays;
        for (std::int64_t column = 0; column < columns; ++column) {
            arrow::DoubleBuilder builder(arrow::system_memory_pool());
            for (std::int64_t row = begin; row < std::min(count, begin + group); ++row) {
                require(builder.Append(value(row, column)));
            }
            arrays.push_back(builder.Finish().ValueOrDie());
        }
        require(writer->WriteTable(*arrow::Table::Make(schema, arrays), group));
    }
    require(writer->Close());
}

std::int64_t read_all(const data::Dataset& dataset, int threads) {
    data::Batches batches(
        {.dataset = dataset, .policy = data::Streaming{}},
        {.size = 64, .shuffle = true, .threads = threads, .memory_bytes = memory_bytes},
        std::make_shared<data::Position>());
    std::int64_t read = 0;
    for (const auto& batch : batches) {
        read += batch.size();
    }
    return read;
}

/// `small` is of the same kind as `large`, so that idle has what libraries take when they are used.
void check_memory(const data::Dataset& small, const data::Dataset& large, std::int64_t expected,
                  int threads) {
    at::set_num_threads(1);
    static_cast<void>(read_all(small, threads));
    static_cast<void>(large.size()); // its index is no part of memory_bytes
    ::malloc_trim(0);
    const std::int64_t idle = test::status_bytes("VmRSS");
    std::ofstream("/proc/self/clear_refs") << "5"; // the peak is what there is now
    REQUIRE(test::status_bytes("VmHWM") < idle + memory_bytes / 16);
    CHECK(read_all(large, threads) == expected);
    const auto grown = static_cast<double>(test::status_bytes("VmHWM") - idle);
    MESSAGE("peak: idle + " << grown / static_cast<double>(memory_bytes) << " x memory_bytes");
    CHECK(grown > 0.25 * static_cast<double>(memory_bytes)); // there were windows
    CHECK(grown <= 1.15 * static_cast<double>(memory_bytes));
}

template <class Write, class Open>
void check_tables(const char* ending, Write write, Open open, int threads) {
    const testing::ScratchDirectory scratch;
    const auto small = scratch.path() / (std::string("small") + ending);
    const auto large = scratch.path() / (std::string("large") + ending);
    write(small, 1000);
    write(large, rows);
    check_memory(open(small), open(large), rows, threads);
}

} // namespace

TEST_CASE("Memory.csv" * doctest::timeout(120)) {
    check_tables(
        ".csv", write_csv, [](const auto& path) { return data::read_csv(path); }, 0);
}

TEST_CASE("Memory.csv_on_threads" * doctest::timeout(120)) {
    check_tables(
        ".csv", write_csv, [](const auto& path) { return data::read_csv(path); }, 2);
}

TEST_CASE("Memory.parquet" * doctest::timeout(120)) {
    check_tables(
        ".parquet", write_parquet, [](const auto& path) { return data::read_parquet(path); }, 0);
}

TEST_CASE("Memory.parquet_on_threads" * doctest::timeout(120)) {
    check_tables(
        ".parquet", write_parquet, [](const auto& path) { return data::read_parquet(path); }, 2);
}

#ifdef RTRAIN_TEST_IMAGES
TEST_CASE("Memory.images_on_threads" * doctest::timeout(120)) {
    constexpr std::int64_t side = 128;
    constexpr std::int64_t count = 4 * memory_bytes / (3 * side * side);
    const testing::ScratchDirectory scratch;
    std::vector<fs::path> images;
    for (const auto& entry : fs::directory_iterator(RTRAIN_TEST_IMAGES)) {
        images.push_back(entry.path());
    }
    REQUIRE_FALSE(images.empty());
    for (std::int64_t i = 0; i < count; ++i) {
        const auto& image = images[static_cast<std::size_t>(i) % images.size()];
        fs::copy_file(image, scratch.path() / (std::to_string(i) + image.extension().string()));
    }
    const data::ImageOptions options{.size = {side, side}, .labels = false};
    check_memory(data::read_images(RTRAIN_TEST_IMAGES, options),
                 data::read_images(scratch.path(), options), count, 2);
}
#endif
