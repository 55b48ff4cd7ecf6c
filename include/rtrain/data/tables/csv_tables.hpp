// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts text of CSV files to Arrow's tables, and finds its rows. Part of the component arrow.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/files/file_index.hpp>
#include <rtrain/data/tables/arrow_memory.hpp>
#include <rtrain/data/tables/csv_blocks.hpp>
#include <rtrain/data/tables/csv_options.hpp>
#include <rtrain/format/json_scanner.hpp>

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/chunked_array.h>
#include <arrow/csv/options.h>
#include <arrow/csv/reader.h>
#include <arrow/io/interfaces.h>
#include <arrow/io/memory.h>
#include <arrow/table.h>
#include <arrow/type.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

/// The position of rows in a CSV file, for messages.
struct CsvPart {
    std::string file;
    const std::vector<std::string>& names; ///< of all its columns; empty: not known yet
    std::int64_t first_row = 0;            ///< in the file, without the header
};

class CsvTables {
public:
    using Types = std::map<std::string, std::shared_ptr<arrow::DataType>>;

    explicit CsvTables(CsvOptions options)
        : columns(options.columns), options_(std::move(options)) {}

    std::vector<std::string> columns; ///< of tables

    [[nodiscard]] detail::CsvBlocks::Format format() const {
        return {.delimiter = options_.delimiter,
                .quote = options_.quote,
                .has_header = options_.names.empty(),
                .max_row_bytes = options_.max_row_bytes,
                .comment = options_.comment,
                .skip_rows = options_.skip_rows};
    }
    /// The same format, with each row as a block.
    [[nodiscard]] detail::CsvBlocks::Format format_of_rows(std::int64_t skip_rows = 0) const {
        auto format = this->format();
        format.has_header = false;
        format.block_bytes = 1;
        format.skip_rows = skip_rows;
        return format;
    }

    /// The rows of `text` after its first `skip_rows` lines, without comments.
    [[nodiscard]] std::string without_comments(std::string text, const std::string& name,
                                               std::int64_t skip_rows = 0) const {
        if (options_.comment == 0 && skip_rows == 0) {
            return text;
        }
        detail::CsvBlocks each_row(format_of_rows(skip_rows), name, 0);
        each_row.feed(text);
        std::string rows;
        for (const FileBlock& row : each_row.finish()) {
            rows.append(text, row.offset, row.bytes);
        }
        return rows;
    }

    /// `text`: rows, or the header of a file whose names are not known yet. Throws DataError
    /// [RT-D49], [RT-D50].
    [[nodiscard]] std::shared_ptr<arrow::Table> table(const CsvPart& part, std::string_view text,
                                                      const Types& types,
                                                      bool skips_ragged = false) const {
        std::string ended;
        if (!text.ends_with('\n')) {
            ended = detail::concat(text, '\n'); // Arrow needs one after a header
            text = ended;
        }
        arrow::csv::ReadOptions read;
        read.use_threads = false;
        read.block_size = static_cast<std::int32_t>(text.size());
        read.column_names = part.names;
        arrow::csv::ParseOptions parse;
        parse.delimiter = options_.delimiter;
        parse.quoting = options_.quote != 0;
        parse.quote_char = options_.quote;
        parse.newlines_in_values = parse.quoting;
        std::optional<arrow::csv::InvalidRow> ragged;
        parse.invalid_row_handler = [&](const arrow::csv::InvalidRow& row) {
            if (skips_ragged) {
                return arrow::csv::InvalidRowResult::Skip;
            }
            ragged.emplace(row);
            return arrow::csv::InvalidRowResult::Error;
        };
        const auto reader = arrow::csv::TableReader::Make(
            arrow::io::IOContext(detail::ArrowMemory::instance()),
            std::make_shared<arrow::io::BufferReader>(std::make_shared<arrow::Buffer>(text)), read,
            parse, conversion(part, types));
        auto table = reader.ok() ? (*reader)->Read() : reader.status();
        if (ragged) {
            throw DataError("RT-D49",
                            detail::concat(row_name(part, ragged->number), " has ",
                                           ragged->actual_columns, " values; expected ",
                                           ragged->expected_columns, " as in ",
                                           options_.names.empty() ? "the header" : ".names"));
        }
        if (!table.ok()) {
            throw_bad_value(part, table.status().message());
        }
        return *std::move(table);
    }

    /// Same as table(), but integers converted to float64 must fit exactly.
    [[nodiscard]] std::shared_ptr<arrow::Table>
    exact_table(const CsvPart& part, std::string_view text, const Types& types) const {
        auto table = this->table(part, text, types);
        for (const std::string& name : columns) {
            const auto column = table->GetColumnByName(name);
            if (column->type()->id() == arrow::Type::DOUBLE && !options_.types.contains(name) &&
                may_be_rounded(*column)) {
                Types as_text = types;
                as_text[name] = arrow::utf8();
                require_exact(part, name, *column,
                              *this->table(part, text, as_text)->GetColumnByName(name));
            }
        }
        return table;
    }

    /// `row`: from 1, as Arrow counts in its input.
    [[nodiscard]] std::string row_name(const CsvPart& part, std::int64_t row) const {
        return detail::concat("row ", part.first_row + row - 1, " of ", part.file);
    }

    /// True if a row is at fault, not the file.
    [[nodiscard]] static bool is_of_row(const DataError& error) {
        return error.is("RT-D49") || error.is("RT-D50");
    }

private:
    [[nodiscard]] static bool may_be_rounded(const arrow::ChunkedArray& column) {
        return std::ranges::any_of(column.chunks(), [](const auto& chunk) {
            const auto* const value = static_cast<const arrow::DoubleArray&>(*chunk).raw_values();
            return std::any_of(value, value + chunk->length(), [](double one) {
                return std::abs(one) >= 0x1p53 && std::isfinite(one);
            });
        });
    }

    /// Both have the same chunks of rows.
    void require_exact(const CsvPart& part, const std::string& name,
                       const arrow::ChunkedArray& column, const arrow::ChunkedArray& text) const {
        std::int64_t row = 0;
        for (int chunk = 0; chunk < column.num_chunks(); ++chunk) {
            const auto& values = static_cast<const arrow::DoubleArray&>(*column.chunk(chunk));
            const auto& texts = static_cast<const arrow::StringArray&>(*text.chunk(chunk));
            for (std::int64_t i = 0; i < values.length(); ++i) {
                ++row;
                if (values.IsValid(i) && texts.IsValid(i) &&
                    !format::holds_integer(values.Value(i), trimmed(texts.GetView(i)))) {
                    throw DataError(
                        "RT-D50",
                        detail::concat("column \"", name, "\", ", row_name(part, row), ": ",
                                       texts.GetView(i),
                                       " is an integer that float64 does not hold exactly; give "
                                       "the column a type with .types: arrow::uint64() or "
                                       "arrow::utf8(), or arrow::float64() to round"));
                }
            }
        }
    }

    [[nodiscard]] static std::string_view trimmed(std::string_view text) {
        text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
        return text.substr(0, text.find_last_not_of(" \t") + 1);
    }

    [[nodiscard]] arrow::csv::ConvertOptions conversion(const CsvPart& part,
                                                        const Types& types) const {
        auto convert = arrow::csv::ConvertOptions::Defaults();
        convert.column_types.insert(types.begin(), types.end());
        convert.strings_can_be_null = options_.text_can_be_null;
        convert.decimal_point = options_.decimal;
        if (!options_.null_values.empty()) {
            convert.null_values = options_.null_values;
        }
        if (!part.names.empty()) {
            convert.include_columns = columns;
        }
        return convert;
    }

    [[noreturn]] void throw_bad_value(const CsvPart& part, const std::string& text) const {
        unsigned long column = 0;
        long row = 0;
        int prefix = 0;
        const bool is_known = std::sscanf(text.c_str(), "In CSV column #%lu: Row #%ld: %n", &column,
                                          &row, &prefix) == 2 &&
                              prefix > 0 && column < part.names.size();
        const std::string where =
            is_known ? detail::concat("column \"", part.names[column], "\", ", row_name(part, row))
                     : detail::concat(part.file, ", from row ", part.first_row, " on");
        throw DataError("RT-D50",
                        detail::concat(where, ": ", text.substr(static_cast<std::size_t>(prefix)),
                                       "; the first rows determine the type; set a different type "
                                       "with .types, or missing values with .null_values"));
    }

    CsvOptions options_;
};

} // namespace rtrain::data
