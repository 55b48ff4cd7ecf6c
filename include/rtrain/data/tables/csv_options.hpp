// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of CSV files. Part of the component arrow.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/files/bad_rows.hpp>
#include <rtrain/data/files/files.hpp>

#include <arrow/type.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::data {

/// Options of read_csv().
struct CsvOptions {
    /// The columns to read, in this order; all if empty. Others are not converted.
    std::vector<std::string> columns = {};
    /// Types of columns that the first rows do not determine: `{{"price", arrow::float64()}}`.
    std::map<std::string, std::shared_ptr<arrow::DataType>> types = {};
    /// Column names of files without a header. If empty, the first line of each file has them.
    std::vector<std::string> names = {};
    char delimiter = ','; ///< between fields
    char quote = '"';     ///< 0: values are never quoted
    /// Texts for missing values; if empty, pyarrow's defaults: "", "NA", "NaN", "null"...
    std::vector<std::string> null_values = {};
    bool text_can_be_null = false;                     ///< null_values also count in text
    std::size_t max_row_bytes = std::size_t{1} << 26U; ///< longer rows are errors; 64 MiB
    FileOptions files = {.endings = {".csv"}};         ///< which files to read
    /// For rows with too many or too few values, or values of a different type.
    OnError on_error = OnError::raise;
    std::int64_t max_errors = 100; ///< skipped bad rows, above which reading fails
    std::int64_t skip_rows = 0;    ///< to skip at the beginning of each file, before its header
    char comment = 0;              ///< lines that begin with it are not rows; 0: none
    char decimal = '.';            ///< of numbers: ',' in 1,5
};

/// Throws DataError [RT-D51].
inline void require_usable(const CsvOptions& options) {
    const auto require = [](bool holds, std::string_view what) {
        if (!holds) {
            throw DataError("RT-D51", detail::concat("options of read_csv(): ", what));
        }
    };
    constexpr std::string_view ends("\n\r\0", 3);
    require(ends.find(options.delimiter) == std::string_view::npos &&
                (options.quote == 0 || ends.find(options.quote) == std::string_view::npos) &&
                options.delimiter != options.quote,
            ".delimiter and .quote must be two characters, and not the end of a line");
    require(options.skip_rows >= 0, ".skip_rows must be at least 0");
    require(options.comment == 0 ||
                (ends.find(options.comment) == std::string_view::npos &&
                 options.comment != options.delimiter && options.comment != options.quote),
            ".comment must differ from .delimiter and .quote, and not be the end of a line");
    require(options.decimal > ' ' && (options.decimal < '0' || options.decimal > '9') &&
                options.decimal != options.delimiter && options.decimal != options.quote,
            ".decimal must differ from .delimiter and .quote, and not be a digit");
    require(options.max_row_bytes >= 1 && options.max_row_bytes <= std::size_t{1} << 30U,
            ".max_row_bytes must be 1 to 2^30");
    for (const auto& [column, type] : options.types) {
        require(type != nullptr, ".types has no type for \"" + column + '"');
    }
}

} // namespace rtrain::data
