// SPDX-License-Identifier: Apache-2.0
// Any bytes, as a file of JSON lines: its rows are the same in pieces and as a whole, and cells are
// what they say. Also as the index of a file.
#include "require.hpp"

#include <rtrain/base/error.hpp>
#include <rtrain/data/lines.hpp>
#include <rtrain/format/json_row.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

using namespace rtrain;

namespace {

void read_row(format::JsonRowParser& parser, std::string_view line) {
    try {
        for (const format::JsonCell& cell : parser.parse(line)) {
            require(cell.integers.size() == cell.reals.size(), "lists have each number twice");
            require(cell.kind != format::JsonKind::null || cell.integers.empty(), "null is null");
        }
    } catch (const std::invalid_argument&) { // no object
    }
}

void read_lines(std::string_view text) {
    const data::LineOptions options{.drop_blank = true, .block_bytes = 16, .max_line_bytes = 100};
    data::LineIndexer whole("fuzz", options);
    data::LineIndexer pieces("fuzz", options);
    whole.add(text);
    for (std::size_t at = 0; at < text.size(); at += 7) {
        pieces.add(text.substr(at, 7));
    }
    const auto blocks = whole.finish();
    require(blocks == pieces.finish(), "pieces make no difference");
    format::JsonRowParser parser(8);
    std::uint64_t end = 0;
    for (const data::FileBlock& block : blocks) {
        require(block.offset >= end && block.offset + block.bytes <= text.size(),
                "blocks follow each other");
        end = block.offset + block.bytes;
        std::int64_t rows = 0;
        data::for_each_line(text.substr(block.offset, block.bytes), options,
                            [&](std::string_view line) {
                                read_row(parser, line);
                                ++rows;
                            });
        require(rows == block.rows, "a block has its rows");
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    try {
        read_lines(input);
    } catch (const DataError&) { // a line that is too long, or the file is packed
    }
    try {
        const data::FileIndex index = data::parse_index(input);
        require(data::to_bytes(index) == input, "an index has one form");
        for (const data::FileBlock& block : index.blocks) {
            require(block.rows > 0 && block.offset + block.bytes <= index.size,
                    "blocks are in the file");
        }
    } catch (const DataError&) { // no index
    }
    return 0;
}
