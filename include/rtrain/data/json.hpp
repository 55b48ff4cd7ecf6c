// SPDX-License-Identifier: Apache-2.0
/// @file
/// JSON lines: a row an object, an object a line.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/bad_rows.hpp>
#include <rtrain/data/batch.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/data/file_blocks.hpp>
#include <rtrain/data/files.hpp>
#include <rtrain/data/index_cache.hpp>
#include <rtrain/data/json_columns.hpp>
#include <rtrain/data/lines.hpp>
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

/// How read_json() reads.
struct JsonOptions {
    std::vector<std::string> columns = {}; ///< those to read, in this order; empty: all
    std::int64_t schema_rows = 1000;       ///< of the first file's first block, tell the types
    std::size_t max_depth = 32;            ///< of objects and lists in each other
    OnError on_error = OnError::raise;     ///< what follows a line that cannot be read
    std::int64_t max_errors = 100;         ///< bad rows that are skipped before it is an error
    /// Longest line, in bytes.
    std::size_t max_line_bytes = std::size_t{1} << 26U;
    std::size_t block_bytes = std::size_t{1} << 18U; ///< read at a time
    FileOptions files = {};                          ///< which files
    /// Of columns whose first rows do not tell, or tell otherwise: `{{"id", ValueType::text}}`.
    ValueTypes types = {};
};

/// The rows of files in one format, JSON lines.
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
        StandIns stand_ins;
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
        if (row > 0 && stand_ins.none_is_good()) {
            throw DataError("RT-D34", detail::concat(rows.name_of(0), " and all ", rows.block.rows,
                                                     " rows from there on cannot be read, so that "
                                                     "none can stand in for them"));
        }
        return with_stand_ins(batch.finish(), stand_ins);
    }

    /// What is read of each line.
    [[nodiscard]] const std::vector<JsonColumn>& columns() const noexcept { return columns_; }

private:
    [[nodiscard]] static std::span<const format::JsonCell> parse(format::JsonRowParser& parser,
                                                                 std::string_view line,
                                                                 const FileRows& rows,
                                                                 std::int64_t row) {
        try {
            return parser.parse(line);
        } catch (const std::invalid_argument& error) {
            throw DataError("RT-D32",
                            detail::concat(rows.name_of(row), " is no JSON object: ", error.what(),
                                           "; each line must be an object by itself"));
        }
    }

    /// In a row; JsonBatch::add_plain() takes them.
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
                throw DataError("RT-D33",
                                detail::concat(file.uri(), ": no column \"", wanted,
                                               "\" is in the first ", row,
                                               " rows; if it comes later, give it a type with "
                                               ".types"));
            }
        }
        return columns;
    }

    JsonOptions options_;
    BadRows bad_;
    LineOptions lines_;
    std::vector<JsonColumn> columns_;
};

/// Rows that are JSON objects, each in a line; blank lines are no rows. Columns and their types
/// come from the first rows, unless .types has them: booleans are bool, integers int64, other
/// numbers float64 (integers among them, too, which it has to hold exactly), texts ragged bytes,
/// lists of numbers ragged int64 or float64. null, or no such key, is NaN in float64, else 0 or
/// empty with a mask (batch.valid(name)). Files are looked for when the data set is first read.
/// Throws then DataError: as read_text() and
/// - RT-D32 a line is no JSON object in UTF-8, or objects are in each other too deeply;
/// - RT-D33 a value has another type than its column, or a column is not in the first rows;
/// - RT-D34 more rows are bad than may be.
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
