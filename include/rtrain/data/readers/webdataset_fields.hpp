// SPDX-License-Identifier: Apache-2.0
/// @file
/// Determines which files of samples in tar archives become columns, and their types. Includes no
/// libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/files/bad_rows.hpp>
#include <rtrain/data/files/files.hpp>
#include <rtrain/data/readers/json_schema.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::data {

/// Options of read_webdataset().
struct WebdatasetOptions {
    /// The files of a sample to read, and keys of JSON ones: {"jpg", "cls", "json.width"}; empty:
    /// those of the first sample.
    std::vector<std::string> columns = {};
    OnError on_error = OnError::raise; ///< for a sample that cannot be read
    std::int64_t max_errors = 100;     ///< skipped bad samples, above which reading fails
    std::size_t block_bytes = std::size_t{1} << 18U; ///< read at a time; at least one sample
    FileOptions files = {.endings = {".tar"}};       ///< which files to read
    /// Types of columns: `{{"json.id", ValueType::text}, {"cls", ValueType::text}}`. Files are
    /// int64, float64 or text.
    ValueTypes types = {};
};

namespace webdataset {

enum class Kind : unsigned char { bytes, integer, real, json };
struct Field {
    std::string name;
    Kind kind = Kind::bytes;
    std::vector<std::string> keys = {}; ///< of JSON, to read; empty: all
    std::vector<JsonColumn> json = {};
};

/// The same kinds as in webdataset's own decoder.
[[nodiscard]] inline Kind kind_of(std::string_view field) {
    const std::string_view last = field.substr(field.rfind('.') + 1);
    const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
        return std::ranges::find(names, last) != names.end();
    };
    return is_one_of({"json", "jsn"})                                           ? Kind::json
           : is_one_of({"cls", "cls2", "class", "count", "index", "inx", "id"}) ? Kind::integer
                                                                                : Kind::bytes;
}

/// The file of a column: "json" for "json.width".
[[nodiscard]] inline std::string_view file_of(std::string_view column) {
    for (std::size_t dot = column.find('.'); dot != std::string_view::npos;
         dot = column.find('.', dot + 1)) {
        if (kind_of(column.substr(0, dot)) == Kind::json) {
            return column.substr(0, dot);
        }
    }
    return column;
}

[[nodiscard]] inline Field field_of(const WebdatasetOptions& options, const std::string& name) {
    const auto type = options.types.find(name);
    if (type == options.types.end()) {
        return {.name = name, .kind = kind_of(name)};
    }
    switch (type->second) {
    case ValueType::int64:
        return {.name = name, .kind = Kind::integer};
    case ValueType::float64:
        return {.name = name, .kind = Kind::real};
    case ValueType::text:
        return {.name = name, .kind = Kind::bytes};
    default:
        throw DataError("RT-D36",
                        detail::concat("options of read_webdataset(): .types has \"", name,
                                       "\" as booleans or lists; files are "
                                       "int64, float64 or text"));
    }
}

/// The types of JSON keys.
[[nodiscard]] inline ValueTypes types_in(const WebdatasetOptions& options,
                                         const std::string& field) {
    ValueTypes types;
    for (const auto& [column, type] : options.types) {
        if (column.size() > field.size() && file_of(column) == field) {
            types.emplace(column.substr(field.size() + 1), type);
        }
    }
    return types;
}

/// The fields named in the options.
[[nodiscard]] inline std::vector<Field> chosen_fields(const WebdatasetOptions& options) {
    std::vector<Field> fields;
    for (const std::string& column : options.columns) {
        const std::string name(file_of(column));
        auto field = std::ranges::find(fields, name, &Field::name);
        const bool is_new = field == fields.end();
        field = is_new ? fields.insert(field, field_of(options, name)) : field;
        if (column == name) {
            field->keys.clear();
        } else if (is_new || !field->keys.empty()) {
            field->keys.push_back(column.substr(name.size() + 1));
        }
    }
    return fields;
}

} // namespace webdataset

} // namespace rtrain::data
