// SPDX-License-Identifier: Apache-2.0
/// @file
/// The columns of JSON rows and their types: inferred from rows, or given. Includes no libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/format/json_row.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

/// The type given to a column by an option.
enum class ValueType : unsigned char {
    boolean,
    int64,        ///< also for numbers such as 3.0
    float64,      ///< integers beyond 2^53 are rounded
    text,         ///< ragged bytes; integers as written
    int64_list,   ///< ragged
    float64_list, ///< ragged; integers beyond 2^53 are rounded
};
/// Types by the names of columns.
using ValueTypes = std::map<std::string, ValueType>;

/// A column and the kind of its values, which is not null.
struct JsonColumn {
    std::string name;
    format::JsonKind kind = format::JsonKind::null;
    bool is_given = false; ///< by an option, not by the first rows
};

[[nodiscard]] inline format::JsonKind kind_of(ValueType type) {
    using format::JsonKind;
    switch (type) {
    case ValueType::boolean:
        return JsonKind::boolean;
    case ValueType::int64:
        return JsonKind::integer;
    case ValueType::float64:
        return JsonKind::real;
    case ValueType::text:
        return JsonKind::text;
    case ValueType::int64_list:
        return JsonKind::integers;
    default:
        return JsonKind::reals;
    }
}

/// The digits of an integer, of any size; empty for other values.
[[nodiscard]] inline std::string integer_text(const format::JsonCell& cell) {
    return cell.kind == format::JsonKind::integer ? std::to_string(cell.integer)
           : cell.kind == format::JsonKind::real  ? cell.text
                                                  : std::string();
}

/// Throws std::invalid_argument if a column cannot hold a value exactly.
inline void require_type(const JsonColumn& column, const format::JsonCell& cell) {
    using format::JsonKind;
    const auto is = [&](JsonKind value, JsonKind of) {
        return cell.kind == value && column.kind == of;
    };
    const bool becomes_real =
        is(JsonKind::integer, JsonKind::real) || is(JsonKind::integers, JsonKind::reals);
    const bool is_converted =
        column.is_given && ((is(JsonKind::real, JsonKind::integer) &&
                             cell.real == std::trunc(cell.real) && std::abs(cell.real) < 0x1p53) ||
                            (column.kind == JsonKind::text && !integer_text(cell).empty()));
    if (cell.kind != column.kind && cell.kind != JsonKind::null && !becomes_real && !is_converted) {
        throw std::invalid_argument(detail::concat(
            "column \"", column.name, "\" has ", name_of(cell.kind), "; expected ",
            name_of(column.kind),
            column.is_given ? ", as set in .types"
                            : ", as in the first rows; give a different type with .types"));
    }
    const bool is_rounded = column.kind == JsonKind::real || column.kind == JsonKind::reals;
    if (is_rounded && !cell.is_exact && !column.is_given) {
        const std::string text = integer_text(cell);
        throw std::invalid_argument(detail::concat(
            "column \"", column.name, "\" has an integer that float64 does not hold exactly",
            text.empty() ? "" : ": ", text, "; give the column a type with .types: ",
            column.kind == JsonKind::reals ? "int64_list, or float64_list to round"
                                           : "int64 or text, or float64 to round"));
    }
}

/// Infers the columns of rows. An integer in a column with a real number is treated as real; a
/// column of nulls as numbers.
class JsonSchema {
public:
    /// Columns that are not in `selected` are ignored; if it is empty, none are. `types` are
    /// columns with given types, whatever rows have.
    explicit JsonSchema(std::vector<std::string> selected, ValueTypes types = {})
        : selected_(std::move(selected)), types_(std::move(types)) {}

    /// Adds a whole row, or nothing: throws std::invalid_argument for unsupported values, and for
    /// two types in one column.
    void add(std::span<const format::JsonCell> row) {
        using format::JsonKind;
        std::vector<JsonColumn> columns = columns_;
        for (const format::JsonCell& cell : row) {
            if (!is_selected(cell.key)) {
                continue;
            }
            auto found = std::ranges::find(columns, cell.key, &JsonColumn::name);
            if (found == columns.end()) {
                found = columns.insert(found, column_of(cell.key));
            }
            JsonKind& kind = found->kind;
            if (cell.kind == JsonKind::other) {
                throw std::invalid_argument(
                    detail::concat("column \"", cell.key, "\" has ", name_of(cell.kind),
                                   "; leave it out by naming the columns to read in .columns"));
            }
            if (found->is_given) {
                require_type(*found, cell);
                continue;
            }
            const auto is_pair = [&](JsonKind less, JsonKind more) {
                return (kind == less && cell.kind == more) || (kind == more && cell.kind == less);
            };
            if (kind == JsonKind::null || kind == cell.kind) {
                kind = cell.kind;
            } else if (is_pair(JsonKind::integer, JsonKind::real)) {
                kind = JsonKind::real;
            } else if (is_pair(JsonKind::integers, JsonKind::reals)) {
                kind = JsonKind::reals;
            } else if (cell.kind != JsonKind::null) {
                throw std::invalid_argument(detail::concat(
                    "column \"", cell.key, "\" has ", name_of(cell.kind), ", and ", name_of(kind),
                    " in an earlier row; give it a type with .types"));
            }
            if (kind == JsonKind::real || kind == JsonKind::reals) {
                require_type(*found, cell);
            }
        }
        columns_ = std::move(columns);
    }

    /// The columns in the order in which they appeared, or as selected; those that are only in
    /// .types are last.
    [[nodiscard]] std::vector<JsonColumn> finish() {
        for (JsonColumn& column : columns_) {
            if (column.kind == format::JsonKind::null) {
                column.kind = format::JsonKind::real;
            }
        }
        for (const auto& [name, type] : types_) {
            if (is_selected(name) &&
                std::ranges::find(columns_, name, &JsonColumn::name) == columns_.end()) {
                columns_.push_back(column_of(name));
            }
        }
        if (!selected_.empty()) {
            std::ranges::sort(columns_, {}, [&](const JsonColumn& column) {
                return std::ranges::find(selected_, column.name) - selected_.begin();
            });
        }
        return columns_;
    }

private:
    [[nodiscard]] bool is_selected(const std::string& name) const {
        return selected_.empty() || std::ranges::find(selected_, name) != selected_.end();
    }
    /// The initial state, before a row has the column.
    [[nodiscard]] JsonColumn column_of(const std::string& name) const {
        const auto type = types_.find(name);
        return type == types_.end() ? JsonColumn{.name = name}
                                    : JsonColumn{name, kind_of(type->second), true};
    }

    std::vector<std::string> selected_;
    ValueTypes types_;
    std::vector<JsonColumn> columns_;
};

} // namespace rtrain::data
