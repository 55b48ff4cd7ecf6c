// SPDX-License-Identifier: Apache-2.0
/// @file
/// How CSV files are read. Part of the component arrow.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/bad_rows.hpp>
#include <rtrain/data/files.hpp>

#include <arrow/type.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::data {

/// How read_csv() reads.
struct CsvOptions {
    /// The columns to read, in this order; all when empty. Others are not converted.
    std::vector<std::string> columns = {};
    /// Of columns whose first rows do not tell: `{{"price", arrow::float64()}}`.
    std::map<std::string, std::shared_ptr<arrow::DataType>> types = {};
    /// Of the columns of files without a header. When empty, the first line of each file has them.
    std::vector<std::string> names = {};
    char delimiter = ','; ///< between fields
    char quote = '"';     ///< 0: values are never quoted
    /// What stands for no value; when empty, what pyarrow takes for it: "", "NA", "NaN", "null"...
    std::vector<std::string> null_values = {};
    bool text_can_be_null = false;                     ///< whether null_values count in text, too
    std::size_t max_row_bytes = std::size_t{1} << 26U; ///< longer rows are errors; 64 MiB
    FileOptions files = {.endings = {".csv"}};         ///< which files
    /// Of rows with too many or too few values, or values of another type.
    OnError on_error = OnError::raise;
    std::int64_t max_errors = 100; ///< bad rows that are skipped before it is an error
    std::int64_t skip_rows = 0;    ///< lines at the beginning of each file, before its header
    char comment = 0;              ///< lines that begin with it are no rows; 0: there are none
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
            ".comment must be another character than .delimiter and .quote, and not the end of a "
            "line");
    require(options.decimal > ' ' && (options.decimal < '0' || options.decimal > '9') &&
                options.decimal != options.delimiter && options.decimal != options.quote,
            ".decimal must be another character than .delimiter and .quote, and no digit");
    require(options.max_row_bytes >= 1 && options.max_row_bytes <= std::size_t{1} << 30U,
            ".max_row_bytes must be 1 to 2^30");
    for (const auto& [column, type] : options.types) {
        require(type != nullptr, ".types has nothing for \"" + column + '"');
    }
}

} // namespace rtrain::data
