// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"

#include <rtrain/data/files/files.hpp>
#include <rtrain/data/files/lines.hpp>
#include <rtrain/storage/file/file.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

using namespace rtrain;
using test::contains;
using test::error_of;

namespace {

data::FileIndex index_text(const std::string& text, const data::LineOptions& options,
                           std::mt19937& random) {
    data::LineIndexer indexer("text", options);
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t piece = random() % 40 + 1;
        indexer.add(std::string_view(text).substr(at, piece));
        at += piece;
    }
    return {.size = text.size(), .modified_ns = 0, .blocks = indexer.finish()};
}

} // namespace

TEST_CASE("Lines.blocks_hold_each_row_once_whatever_the_pieces") {
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
        std::string text = random() % 4 == 0 ? "\xEF\xBB\xBF" : "";
        const std::size_t bom = text.size();
        for (std::size_t left = random() % 60; left > 0; --left) {
            const std::string_view parts[] = {
                "a", "bb", " ", "\t", "\r", "\n", "\r\n", std::string_view("\0", 1), "\xC3\xA4"};
            text += parts[random() % std::size(parts)];
        }
        const data::LineOptions options{.drop_blank = random() % 2 == 0,
                                        .block_bytes = random() % 20 + 1,
                                        .max_line_bytes = 1000};
        CAPTURE(text);
        const data::FileIndex index = index_text(text, options, random);
        std::vector<std::string> whole;
        data::for_each_line(std::string_view(text).substr(bom), options,
                            [&](std::string_view row) { whole.emplace_back(row); });
        std::vector<std::string> rows;
        for (const data::FileBlock& block : index.blocks) {
            const std::size_t before = rows.size();
            data::for_each_line(std::string_view(text).substr(block.offset, block.bytes), options,
                                [&](std::string_view row) { rows.emplace_back(row); });
            CHECK(static_cast<std::int64_t>(rows.size() - before) == block.rows);
            CHECK((block.bytes >= options.block_bytes || &block == &index.blocks.back()));
        }
        CHECK(rows == whole);
        CHECK(data::parse_index(data::to_bytes(index)) == index);
    }
}

TEST_CASE("Lines.that_are_too_long_or_packed_are_errors") {
    std::mt19937 random(8);
    const data::LineOptions options{.max_line_bytes = 100};
    const std::string lines = "short\n" + std::string(100, 'x') + "\n";
    CHECK(index_text(lines, options, random).blocks.front().rows == 2);
    const auto error = [&](const std::string& text) {
        return error_of([&] { static_cast<void>(index_text(text, options, random)); });
    };
    CHECK(contains(error("short\n" + std::string(101, 'x') + "\n"), "line 2, at byte 6"));
    CHECK(contains(error("short\n" + std::string(10'000, 'x')), "[RT-D30]"));
    CHECK(contains(error("\x1F\x8B\x08 and so on"), "[RT-D31]"));
    // Of a line of a GiB, no more than the limit is ever in memory.
    data::LineIndexer indexer("huge", {.max_line_bytes = 1U << 20U});
    const std::string piece(1U << 18U, 'x');
    int pieces = 0;
    CHECK_THROWS_AS(
        [&] {
            for (; pieces < 4096; ++pieces) {
                indexer.add(piece);
            }
        }(),
        DataError);
    CHECK(pieces == 4);
}
