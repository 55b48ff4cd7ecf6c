// SPDX-License-Identifier: Apache-2.0
/// @file
/// JSON lines: each line is an object, and each object a row.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/files/bad_rows.hpp>
#include <rtrain/data/files/file_blocks.hpp>
#include <rtrain/data/files/files.hpp>
#include <rtrain/data/files/index_cache.hpp>
#include <rtrain/data/files/lines.hpp>
#include <rtrain/data/readers/json_columns.hpp>
#include <rtrain/format/json_row.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Options of read_json().
struct JsonOptions {
    std::vector<std::string> columns = {}; ///< to read, in this order; empty: all
    std::int64_t schema_rows = 1000;       ///< rows of the first block that set the types
    std::size_t max_depth = 32;            ///< of nested objects and lists
    OnError on_error = OnError::raise;     ///< for a line that cannot be read
    std::int64_t max_errors = 100;         ///< skipped bad rows, above which reading fails
    /// Longest line, in bytes.
    std::size_t max_line_bytes = std::size_t{1} << 26U;
    std::size_t block_bytes = std::size_t{1} << 18U; ///< read at a time
    FileOptions files = {};                          ///< which files to read
    /// Types of columns that the first rows lack, or that should differ: `{{"id",
    /// ValueType::text}}`.
    ValueTypes types = {};
};

/// The rows of files in JSON lines.
class JsonLines : public FileFormat {
public:
    /// Finds the columns in the first of `files`. Throws DataError as read_json().
    JsonLines(JsonOptions options, const storage::RandomAccessFile& first)
        : options_(std::move(options)),
          bad_(options_.on_error, options_.max_errors), lines_{.drop_blank = true,
                                                               .block_bytes = options_.block_bytes,
                                                               .max_line_bytes =
                                                                   options_.max_line_bytes},
          columns_(find_columns(first)) {}

    [[nodiscard]] std::string kind() const override { return lines_.kind(); }

    [[nodiscard]] FileIndex index(const storage::RandomAccessFile& file) const override {
        return index_lines(file, lines_);
    }

    [[nodiscard]] Batch read(const FileRows& rows) const override {
        const std::string bytes = rows.bytes();
        format::JsonRowParser parser(options_.max_depth);
        JsonBatch batch(columns_, options_.columns.empty());
        ReplacementRows stand_ins;
        std::int64_t row = 0;
        for_each_line(bytes, lines_, [&](std::string_view line) {
            try {
                if (!lists_are_allowed() || !batch.add_plain(line)) {
                    batch.add(parse(parser, line, rows, row));
                }
                stand_ins.add(true);
            } catch (const std::invalid_argument& error) {
                add_bad(DataError("RT-D33", rows.name_of(row) + ": " + error.what()), rows, row);
                stand_ins.add(false);
            } catch (const DataError& error) {
                add_bad(error, rows, row);
                stand_ins.add(false);
            }
            ++row;
        });
        stand_ins.require_good(rows.name_of(0), "row");
        return with_stand_ins(batch.finish(), stand_ins);
    }

    /// The columns to read from each line.
    [[nodiscard]] const std::vector<JsonColumn>& columns() const noexcept { return columns_; }

private:
    [[nodiscard]] static std::span<const format::JsonCell> parse(format::JsonRowParser& parser,
                                                                 std::string_view line,
                                                                 const FileRows& rows,
                                                                 std::int64_t row) {
        try {
            return parser.parse(line);
        } catch (const std::invalid_argument& error) {
            throw DataError("RT-D32", detail::concat(rows.name_of(row),
                                                     " is not a JSON object: ", error.what(),
                                                     "; each line must be one object"));
        }
    }

    /// Within a row; JsonBatch::add_plain() takes them.
    [[nodiscard]] bool lists_are_allowed() const noexcept { return options_.max_depth >= 2; }

    void add_bad(const DataError& error, const FileRows& rows, std::int64_t row) const {
        bad_.add(error, rows.file.uri(), rows.first_row + row);
    }

    [[nodiscard]] std::vector<JsonColumn>
    find_columns(const storage::RandomAccessFile& file) const {
        const auto index = index_file(file, kind(), [&] { return this->index(file); });
        if (index->blocks.empty()) {
            throw DataError("RT-D26", file.uri() + " has blank lines only; a data file has at "
                                                   "least one row");
        }
        const FileRows rows{.file = file, .block = index->blocks.front(), .first_row = 0};
        const std::string bytes = rows.bytes();
        format::JsonRowParser parser(options_.max_depth);
        JsonSchema schema(options_.columns, options_.types);
        std::int64_t row = 0;
        for_each_line(bytes, lines_, [&](std::string_view line) {
            if (row < options_.schema_rows) {
                try {
                    schema.add(parse(parser, line, rows, row));
                } catch (const std::invalid_argument& error) {
                    add_bad(DataError("RT-D33", rows.name_of(row) + ": " + error.what()), rows,
                            row);
                } catch (const DataError& error) {
                    add_bad(error, rows, row);
                }
            }
            ++row;
        });
        auto columns = schema.finish();
        for (const std::string& wanted : options_.columns) {
            if (std::ranges::find(columns, wanted, &JsonColumn::name) == columns.end()) {
                throw DataError(
                    "RT-D33",
                    detail::concat(file.uri(), ": no column \"", wanted, "\" is in the first ", row,
                                   " rows; if it appears later, give it a type with .types"));
            }
        }
        return columns;
    }

    JsonOptions options_;
    BadRows bad_;
    LineOptions lines_;
    std::vector<JsonColumn> columns_;
};

/// Rows that are JSON objects, one per line; blank lines are skipped. The first rows determine
/// columns and their types, unless .types does. Booleans become bool, integers int64, other numbers
/// float64 (which must hold integers among them exactly), texts ragged bytes, lists of numbers
/// ragged int64 or float64. A null or missing value is NaN in float64, else 0 or empty with a mask
/// (batch.valid(name)). Files are listed when the data set is first read, which then throws
/// DataError: as read_text(), and
/// - RT-D32 a line is not a JSON object in UTF-8, or objects are nested too deeply;
/// - RT-D33 a value has a different type than its column, or a column is not in the first rows;
/// - RT-D34 too many rows are bad.
///
/// @code
/// auto logs = rtrain::data::read_json("logs/*.json", {.columns = {"text", "label"},
///                                                     .on_error = rtrain::data::OnError::skip});
/// @endcode
[[nodiscard]] inline Dataset read_json(Paths paths, JsonOptions options = {}) {
    FileOptions files = options.files;
    files.unpacks = true;
    return read_files_as<JsonLines>(std::move(paths), std::move(files), std::move(options));
}

} // namespace rtrain::data
