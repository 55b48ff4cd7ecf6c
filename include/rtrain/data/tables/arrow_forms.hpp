// SPDX-License-Identifier: Apache-2.0
/// @file
/// Maps Arrow's types to those of a batch, and rejects unsupported ones.
#pragma once

#include <rtrain/base/error.hpp>

#include <arrow/extension_type.h>
#include <arrow/status.h>
#include <arrow/type.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// A column of a batch: a tensor of shape (rows, shape...), or a Ragged whose values have the shape
/// (values, shape...).
struct ArrowForm {
    at::ScalarType dtype = at::kFloat;
    std::vector<std::int64_t> shape;
    bool is_ragged = false;
    std::int64_t units_a_day = 0; ///< of times and dates, which are integers in their unit
    std::string time = {};        ///< the kind of time, to distinguish them: "timestamp"

    friend bool operator==(const ArrowForm&, const ArrowForm&) = default;
};

[[nodiscard]] inline std::optional<ArrowForm> form_of(const arrow::DataType& type);

/// The form of a list whose values have the form `values`; `count` is 0 if lengths differ.
[[nodiscard]] inline std::optional<ArrowForm> form_of_list(const arrow::DataType& values,
                                                           std::int64_t count, bool is_ragged) {
    auto form = form_of(values);
    if (!form || form->is_ragged) {
        return std::nullopt;
    }
    form->is_ragged = is_ragged;
    if (!is_ragged) {
        form->shape.insert(form->shape.begin(), count);
    }
    return form;
}

[[nodiscard]] inline std::int64_t units_a_day(arrow::TimeUnit::type unit) {
    constexpr std::int64_t seconds = 86'400;
    switch (unit) {
    case arrow::TimeUnit::SECOND:
        return seconds;
    case arrow::TimeUnit::MILLI:
        return seconds * 1'000;
    case arrow::TimeUnit::MICRO:
        return seconds * 1'000'000;
    default:
        return seconds * 1'000'000'000;
    }
}

/// The form of times and dates; empty for other types.
[[nodiscard]] inline std::optional<ArrowForm> form_of_time(const arrow::DataType& type) {
    const auto with = [](std::int64_t units, std::string time) {
        return ArrowForm{at::kLong, {}, false, units, std::move(time)};
    };
    switch (type.id()) {
    case arrow::Type::DATE32:
        return with(1, "date");
    case arrow::Type::DATE64:
        return with(units_a_day(arrow::TimeUnit::MILLI), "date");
    case arrow::Type::TIME32:
    case arrow::Type::TIME64:
        return with(units_a_day(static_cast<const arrow::TimeType&>(type).unit()), "time");
    case arrow::Type::TIMESTAMP:
        return with(units_a_day(static_cast<const arrow::TimestampType&>(type).unit()),
                    "timestamp");
    case arrow::Type::DURATION:
        return with(units_a_day(static_cast<const arrow::DurationType&>(type).unit()), "duration");
    default:
        return std::nullopt;
    }
}

/// Empty for a type that a batch cannot hold.
[[nodiscard]] inline std::optional<ArrowForm> form_of(const arrow::DataType& type) {
    switch (type.id()) {
    case arrow::Type::BOOL:
        return ArrowForm{at::kBool, {}};
    case arrow::Type::UINT8:
        return ArrowForm{at::kByte, {}};
    case arrow::Type::INT8:
        return ArrowForm{at::kChar, {}};
    case arrow::Type::INT16:
        return ArrowForm{at::kShort, {}};
    case arrow::Type::UINT16: // libtorch has few operators for unsigned types
    case arrow::Type::INT32:
        return ArrowForm{at::kInt, {}};
    case arrow::Type::UINT32:
    case arrow::Type::UINT64:
    case arrow::Type::INT64:
        return ArrowForm{at::kLong, {}};
    case arrow::Type::HALF_FLOAT:
        return ArrowForm{at::kHalf, {}};
    case arrow::Type::FLOAT:
        return ArrowForm{at::kFloat, {}};
    case arrow::Type::NA:
    case arrow::Type::DOUBLE:
    case arrow::Type::DECIMAL32:
    case arrow::Type::DECIMAL64:
    case arrow::Type::DECIMAL128:
    case arrow::Type::DECIMAL256:
        return ArrowForm{at::kDouble, {}};
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY_VIEW:
        return ArrowForm{at::kByte, {}, true};
    case arrow::Type::FIXED_SIZE_BINARY:
        return ArrowForm{at::kByte,
                         {static_cast<const arrow::FixedSizeBinaryType&>(type).byte_width()}};
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
        return form_of_list(*type.field(0)->type(), 0, true);
    case arrow::Type::FIXED_SIZE_LIST:
        return form_of_list(*type.field(0)->type(),
                            static_cast<const arrow::FixedSizeListType&>(type).list_size(), false);
    case arrow::Type::DICTIONARY:
        return form_of(*static_cast<const arrow::DictionaryType&>(type).value_type());
    case arrow::Type::EXTENSION:
        return form_of(*static_cast<const arrow::ExtensionType&>(type).storage_type());
    default:
        return form_of_time(type);
    }
}

/// Throws DataError [RT-D41] for a type that a batch cannot hold.
[[nodiscard]] inline ArrowForm require_form(const arrow::DataType& type, std::string_view column,
                                            std::string_view file) {
    if (auto form = form_of(type)) {
        return *std::move(form);
    }
    throw DataError(
        "RT-D41", concat("column \"", column, "\" of ", file, " is of type ", type.ToString(),
                         ", which a batch cannot hold; supported are numbers, booleans, dates and "
                         "times, text, bytes, dictionaries and lists of these; write a struct's "
                         "fields as separate columns, or leave the column out with .columns"));
}

/// The positions of columns in a file's schema. Throws DataError [RT-D43], [RT-D44]. `are_all`: the
/// file must have no others.
[[nodiscard]] inline std::vector<int> choose_fields(const arrow::Schema& schema,
                                                    const std::vector<std::string>& columns,
                                                    bool are_all, std::string_view file) {
    std::vector<int> fields;
    for (const std::string& column : columns) {
        const auto found = schema.GetAllFieldIndices(column);
        if (found.size() == 1) {
            fields.push_back(found.front());
            continue;
        }
        std::string names;
        for (const std::string& name : schema.field_names()) {
            names += concat(names.empty() ? "" : ", ", '"', name, '"');
        }
        throw DataError("RT-D43",
                        concat(file, " has ", found.empty() ? "no column" : "several columns named",
                               " \"", column, "\"; expected one; its columns are ", names));
    }
    if (are_all) {
        for (const std::string& name : schema.field_names()) {
            if (std::ranges::find(columns, name) == columns.end()) {
                throw DataError("RT-D44", concat(file, " has a column \"", name,
                                                 "\", which the first file does not have; set "
                                                 ".columns to the columns to read"));
            }
        }
    }
    return fields;
}

/// The column types of the first file, which all others must share.
class SameForms {
public:
    /// Throws DataError [RT-D41], [RT-D44].
    void require_same(const arrow::Field& field, std::string_view file) {
        const ArrowForm form = require_form(*field.type(), field.name(), file);
        const auto [first, is_new] =
            first_.try_emplace(field.name(), First{form, field.type(), std::string(file)});
        if (!is_new && first->second.form != form) {
            throw DataError("RT-D44",
                            concat("column \"", field.name(), "\" is ", field.type()->ToString(),
                                   " in ", file, ", but ", first->second.type->ToString(), " in ",
                                   first->second.file, "; give the files the same types"));
        }
    }

private:
    struct First {
        ArrowForm form;
        std::shared_ptr<arrow::DataType> type;
        std::string file;
    };

    std::map<std::string, First, std::less<>> first_;
};

} // namespace rtrain::detail
