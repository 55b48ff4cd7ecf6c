// SPDX-License-Identifier: Apache-2.0
// Any bytes, as a file of JSON lines: its rows are the same in pieces and as a whole, cells are
// what they say, and plain JSON is JSON of the same values. Also as the index of a file.
#include "require.hpp"

#include <rtrain/base/error.hpp>
#include <rtrain/data/files/lines.hpp>
#include <rtrain/format/json_row.hpp>
#include <rtrain/format/json_scanner.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

using namespace rtrain;

namespace {

/// What a plain object has, key by key.
bool is_plain_object(std::string_view line) {
    format::JsonScanner json(line);
    bool is_plain = json.take('{');
    do {
        is_plain = is_plain && json.take_text() && json.take(':') && json.skip_value();
    } while (is_plain && json.take(','));
    return is_plain && json.take('}') && json.is_at_end();
}

bool same(double one, double other) {
    return std::bit_cast<std::uint64_t>(one) == std::bit_cast<std::uint64_t>(other) ||
           (std::isnan(one) && std::isnan(other));
}

/// Takes a value of this cell's kind; where it is a plain one, it is the cell's.
bool takes(format::JsonScanner& json, const format::JsonCell& cell) {
    using format::JsonKind;
    std::size_t element = 0;
    switch (cell.kind) {
    case JsonKind::null:
        return json.take_null();
    case JsonKind::boolean: {
        const auto taken = json.take_boolean();
        require(!taken || *taken == (cell.integer != 0), "a boolean is the same");
        return taken.has_value();
    }
    case JsonKind::integer: {
        const auto taken = json.take_integer();
        require(!taken || *taken == cell.integer, "an integer is the same");
        return taken.has_value();
    }
    case JsonKind::real: {
        const auto taken = json.take_real();
        require(!taken || same(*taken, cell.real), "a number is the same");
        return taken.has_value();
    }
    case JsonKind::text: {
        const auto taken = json.take_text();
        require(!taken || *taken == cell.text, "a text is the same");
        return taken.has_value();
    }
    case JsonKind::integers:
    case JsonKind::reals:
        return json.take_list([&] {
            const auto taken = json.take_null() ? std::optional(std::nan("")) : json.take_real();
            require(!taken || (element < cell.reals.size() && same(*taken, cell.reals[element])),
                    "an element is the same");
            ++element;
            return taken.has_value();
        });
    default:
        return false;
    }
}

void read_row(format::JsonRowParser& parser, std::string_view line) {
    const bool is_plain = is_plain_object(line);
    try {
        format::JsonScanner json(line);
        bool goes_on = json.take('{');
        bool rounds = false; // plain numbers may need the parser: -0, integers beyond float64
        for (const format::JsonCell& cell : parser.parse(line)) {
            require(cell.integers.size() == cell.reals.size(), "lists have each number twice");
            require(cell.kind != format::JsonKind::null || cell.integers.empty(), "null is null");
            goes_on = goes_on && format::JsonScanner::is_plain(cell.key) &&
                      json.take_key(cell.key) && takes(json, cell);
            rounds = rounds || (cell.kind != format::JsonKind::null &&
                                cell.kind != format::JsonKind::boolean &&
                                cell.kind != format::JsonKind::text);
            require(goes_on || !is_plain || rounds, "what was plain once is so again");
            static_cast<void>(json.take(','));
        }
    } catch (const std::invalid_argument&) { // no object
        require(!is_plain, "plain JSON is JSON");
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
