// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts Arrow's arrays to the columns of a batch. Numbers, and the values of lists and text,
/// share memory with the array, which must have no other owner. Missing values are overwritten (NaN
/// in columns of floats, 0 in others), and users may write to a batch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/ragged.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/tables/arrow_decimal.hpp>
#include <rtrain/data/tables/arrow_forms.hpp>
#include <rtrain/data/tables/arrow_memory.hpp>
#include <rtrain/format/json_scanner.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <arrow/array.h>
#include <arrow/array/concatenate.h>
#include <arrow/array/util.h>
#include <arrow/chunked_array.h>
#include <arrow/extension_type.h>
#include <arrow/table.h>
#include <arrow/util/decimal.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// The array of a column, and its name in messages.
class ArrowColumn {
public:
    /// A tensor or a Ragged, and a mask of rows that have a value: undefined if all have, or
    /// missing ones are NaN.
    struct Values {
        at::Tensor tensor;
        data::Ragged ragged;
        at::Tensor valid;
    };

    /// `first_row`: the number in `file` of the array's first row.
    ArrowColumn(std::string_view name, std::string_view file, std::int64_t first_row)
        : name_(name), file_(file), first_row_(first_row) {}

    /// Throws DataError [RT-D40] to [RT-D42].
    [[nodiscard]] Values values(const std::shared_ptr<arrow::Array>& array) const {
        const arrow::DataType& type = *array->type();
        const ArrowForm form = require_form(type, name_, file_);
        if (type.id() == arrow::Type::EXTENSION) {
            return values(static_cast<const arrow::ExtensionArray&>(*array).storage());
        }
        if (type.id() == arrow::Type::DICTIONARY) {
            return decoded(static_cast<const arrow::DictionaryArray&>(*array), form);
        }
        Values column;
        column.valid = valid(*array);
        if (form.is_ragged) {
            column.ragged = ragged(array);
        } else {
            column.tensor = tensor(array, form, column.valid);
            fill_nulls(column);
        }
        return column;
    }

private:
    /// The mask of rows that have a value; undefined if all have.
    [[nodiscard]] static at::Tensor valid(const arrow::Array& array) {
        if (array.null_count() == 0 || array.type_id() == arrow::Type::NA) {
            return {};
        }
        at::Tensor mask = at::empty({array.length()}, at::kBool);
        auto* const is_valid = mask.mutable_data_ptr<bool>();
        for (std::int64_t row = 0; row < array.length(); ++row) {
            is_valid[row] = array.IsValid(row);
        }
        return mask;
    }

    /// Arrow's memory as a tensor that keeps the array alive.
    [[nodiscard]] static at::Tensor borrowed(const std::shared_ptr<arrow::Array>& array,
                                             const void* from, std::int64_t count,
                                             at::ScalarType dtype) {
        return count == 0 ? at::empty({0}, dtype)
                          : at::from_blob(
                                const_cast<void*>(from), {count}, [array](void*) {}, dtype);
    }

    /// Converts the numbers of an array whose memory has a different width.
    template <class Array, class To>
    [[nodiscard]] static at::Tensor converted(const arrow::Array& array, at::ScalarType dtype) {
        const auto* const from = static_cast<const Array&>(array).raw_values();
        at::Tensor tensor = at::empty({array.length()}, dtype);
        auto* const to = tensor.mutable_data_ptr<To>();
        for (std::int64_t row = 0; row < array.length(); ++row) {
            to[row] = static_cast<To>(from[row]);
        }
        return tensor;
    }

    /// Throws DataError [RT-D42] for an integer that a double does not hold exactly.
    template <class Decimal>
    [[nodiscard]] at::Tensor doubles(const arrow::Array& array) const {
        const auto& values = static_cast<const arrow::FixedSizeBinaryArray&>(array);
        const auto scale = static_cast<const arrow::DecimalType&>(*array.type()).scale();
        at::Tensor tensor = at::zeros({array.length()}, at::kDouble);
        auto* const to = tensor.mutable_data_ptr<double>();
        for (std::int64_t row = 0; row < array.length(); ++row) {
            if (array.IsValid(row)) {
                const Decimal decimal(values.GetValue(row));
                to[row] = nearest_double(decimal, scale);
                if (scale <= 0 && std::abs(to[row]) >= 0x1p53 &&
                    !format::holds_integer(to[row], decimal.ToString(scale))) {
                    throw DataError(
                        "RT-D42",
                        concat("column \"", name_, "\", row ", first_row_ + row, " of ", file_,
                               " is ", decimal.ToString(scale),
                               ", which float64 does not hold exactly; write the column as int64 "
                               "or text, or leave it out with .columns"));
                }
            }
        }
        return tensor;
    }

    [[nodiscard]] at::Tensor tensor(const std::shared_ptr<arrow::Array>& array,
                                    const ArrowForm& form, const at::Tensor& valid) const {
        switch (array->type_id()) {
        case arrow::Type::NA:
            return at::full({array->length()}, std::numeric_limits<double>::quiet_NaN(),
                            at::kDouble);
        case arrow::Type::BOOL:
            return booleans(static_cast<const arrow::BooleanArray&>(*array));
        case arrow::Type::UINT16:
            return converted<arrow::UInt16Array, std::int32_t>(*array, form.dtype);
        case arrow::Type::UINT32:
            return converted<arrow::UInt32Array, std::int64_t>(*array, form.dtype);
        case arrow::Type::UINT64:
            require_signed(static_cast<const arrow::UInt64Array&>(*array));
            break;
        case arrow::Type::DATE32:
            return converted<arrow::Date32Array, std::int64_t>(*array, form.dtype);
        case arrow::Type::TIME32:
            return converted<arrow::Time32Array, std::int64_t>(*array, form.dtype);
        case arrow::Type::DECIMAL32:
            return doubles<arrow::Decimal32>(*array);
        case arrow::Type::DECIMAL64:
            return doubles<arrow::Decimal64>(*array);
        case arrow::Type::DECIMAL128:
            return doubles<arrow::Decimal128>(*array);
        case arrow::Type::DECIMAL256:
            return doubles<arrow::Decimal256>(*array);
        case arrow::Type::FIXED_SIZE_BINARY: {
            const auto& bytes = static_cast<const arrow::FixedSizeBinaryArray&>(*array);
            return borrowed(array, bytes.raw_values(), bytes.length() * bytes.byte_width(),
                            form.dtype)
                .view({bytes.length(), bytes.byte_width()});
        }
        case arrow::Type::FIXED_SIZE_LIST:
            return fixed_lists(static_cast<const arrow::FixedSizeListArray&>(*array), form, valid);
        default:
            break;
        }
        const auto* const from = array->data()->GetValues<std::uint8_t>(1, 0);
        const auto width = static_cast<std::int64_t>(c10::elementSize(form.dtype));
        return borrowed(array, array->length() == 0 ? nullptr : from + array->offset() * width,
                        array->length(), form.dtype);
    }

    [[nodiscard]] static at::Tensor booleans(const arrow::BooleanArray& array) {
        at::Tensor tensor = at::empty({array.length()}, at::kBool);
        auto* const to = tensor.mutable_data_ptr<bool>();
        for (std::int64_t row = 0; row < array.length(); ++row) {
            to[row] = array.Value(row);
        }
        return tensor;
    }

    void require_signed(const arrow::UInt64Array& array) const {
        constexpr std::uint64_t largest = std::numeric_limits<std::int64_t>::max();
        for (std::int64_t row = 0; row < array.length(); ++row) {
            if (array.IsValid(row) && array.Value(row) > largest) {
                throw DataError("RT-D42",
                                concat("column \"", name_, "\", row ", first_row_ + row, " of ",
                                       file_, " is ", array.Value(row),
                                       "; the largest number that an int64 holds is ", largest));
            }
        }
    }

    /// Values of lists must not be null: a mask has one element a row.
    [[nodiscard]] static bool has_all(const Values& values, const at::Tensor& valid_rows) {
        if (!values.valid.defined()) {
            return true;
        }
        at::Tensor rows = values.valid.view({valid_rows.size(0), -1}).all(1);
        return rows.logical_or_(valid_rows.logical_not()).all().item<bool>();
    }

    [[noreturn]] void throw_null_in_list() const {
        throw DataError("RT-D42", concat("column \"", name_, "\" of ", file_,
                                         " has a list with a null in it, between rows that begin "
                                         "at row ",
                                         first_row_,
                                         "; a list may be null as a whole, and lists of floats "
                                         "may have nulls, which become NaN"));
    }

    [[nodiscard]] at::Tensor fixed_lists(const arrow::FixedSizeListArray& lists,
                                         const ArrowForm& form, const at::Tensor& valid) const {
        const std::int64_t count = lists.value_length(0);
        const Values items =
            values(lists.values()->Slice(lists.value_offset(0), lists.length() * count));
        if (!has_all(items, valid.defined() ? valid : at::ones({lists.length()}, at::kBool))) {
            throw_null_in_list();
        }
        std::vector<std::int64_t> shape{lists.length()};
        shape.insert(shape.end(), form.shape.begin(), form.shape.end());
        return items.tensor.view(shape);
    }

    [[nodiscard]] data::Ragged ragged(const std::shared_ptr<arrow::Array>& array) const {
        switch (array->type_id()) {
        case arrow::Type::LIST:
            return lists(static_cast<const arrow::ListArray&>(*array), array);
        case arrow::Type::LARGE_LIST:
            return lists(static_cast<const arrow::LargeListArray&>(*array), array);
        case arrow::Type::STRING_VIEW:
        case arrow::Type::BINARY_VIEW:
            return views(static_cast<const arrow::BinaryViewArray&>(*array));
        case arrow::Type::LARGE_STRING:
        case arrow::Type::LARGE_BINARY:
            return bytes(static_cast<const arrow::LargeBinaryArray&>(*array), array);
        default:
            return bytes(static_cast<const arrow::BinaryArray&>(*array), array);
        }
    }

    /// The offsets as int64, from 0.
    template <class Array>
    [[nodiscard]] static at::Tensor offsets(const Array& array,
                                            const std::shared_ptr<arrow::Array>& owner) {
        using Offset = typename Array::offset_type;
        if (array.length() == 0) { // Arrow may omit them then
            return at::zeros({1}, at::kLong);
        }
        const auto dtype = sizeof(Offset) == sizeof(std::int64_t) ? at::kLong : at::kInt;
        at::Tensor tensor = borrowed(owner, array.raw_value_offsets(), array.length() + 1, dtype);
        return array.value_offset(0) == 0
                   ? tensor.to(at::kLong)
                   : tensor.to(at::kLong).sub(std::int64_t{array.value_offset(0)});
    }

    template <class Array>
    [[nodiscard]] static data::Ragged bytes(const Array& array,
                                            const std::shared_ptr<arrow::Array>& owner) {
        const std::int64_t count = array.length() == 0 ? 0 : array.total_values_length();
        return {borrowed(owner, count == 0 ? nullptr : array.raw_data() + array.value_offset(0),
                         count, at::kByte),
                offsets(array, owner)};
    }

    [[nodiscard]] static data::Ragged views(const arrow::BinaryViewArray& array) {
        at::Tensor offsets = at::zeros({array.length() + 1}, at::kLong);
        auto* const offset = offsets.mutable_data_ptr<std::int64_t>();
        const auto view = [&](std::int64_t row) {
            return array.IsValid(row) ? array.GetView(row) : std::string_view();
        };
        for (std::int64_t row = 0; row < array.length(); ++row) {
            offset[row + 1] = offset[row] + static_cast<std::int64_t>(view(row).size());
        }
        at::Tensor values = at::empty({offset[array.length()]}, at::kByte);
        auto* const to = values.mutable_data_ptr<std::uint8_t>();
        for (std::int64_t row = 0; row < array.length(); ++row) {
            if (const auto text = view(row); !text.empty()) {
                std::memcpy(to + offset[row], text.data(), text.size());
            }
        }
        return {std::move(values), std::move(offsets)};
    }

    template <class Array>
    [[nodiscard]] data::Ragged lists(const Array& array,
                                     const std::shared_ptr<arrow::Array>& owner) const {
        const std::int64_t begin = array.length() == 0 ? 0 : array.value_offset(0);
        const std::int64_t end = array.length() == 0 ? 0 : array.value_offset(array.length());
        Values items = values(array.values()->Slice(begin, end - begin));
        if (items.valid.defined()) {
            throw_null_in_list();
        }
        return {std::move(items.tensor), offsets(array, owner)};
    }

    /// Looks up each row in the dictionary.
    [[nodiscard]] Values decoded(const arrow::DictionaryArray& array, const ArrowForm& form) const {
        if (array.dictionary()->length() == 0) { // all rows are null
            auto nulls = arrow::MakeArrayOfNull(array.dictionary()->type(), array.length(),
                                                ArrowMemory::instance());
            return values(std::move(nulls).ValueOrDie());
        }
        const Values words = values(array.dictionary());
        Values column = values(array.indices());
        at::Tensor numbers = column.tensor.to(at::kLong);
        if (numbers.numel() > 0 &&
            (numbers.min().item<std::int64_t>() < 0 ||
             numbers.max().item<std::int64_t>() >= array.dictionary()->length())) {
            throw DataError("RT-D40",
                            concat("column \"", name_, "\" of ", file_, ", rows from ", first_row_,
                                   ", has a key that is not in its dictionary",
                                   "; the file is damaged"));
        }
        if (words.valid.defined()) {
            const at::Tensor valid = words.valid.index_select(0, numbers);
            column.valid = column.valid.defined() ? column.valid.logical_and(valid) : valid;
        }
        if (form.is_ragged) {
            data::Ragged texts = words.ragged;
            if (column.valid.defined()) { // one more, empty word for rows without one
                numbers = numbers.masked_fill(column.valid.logical_not(), texts.size());
                texts.offsets = at::cat({texts.offsets, texts.offsets.slice(0, texts.size())});
            }
            column.ragged = data::select_rows(texts, numbers);
            column.tensor = at::Tensor();
        } else {
            column.tensor = words.tensor.index_select(0, numbers);
            fill_nulls(column);
        }
        return column;
    }

    /// NaN suffices: floats need no mask.
    static void fill_nulls(Values& column) {
        if (!column.valid.defined()) {
            return;
        }
        std::vector<std::int64_t> shape(static_cast<std::size_t>(column.tensor.dim()), 1);
        shape.front() = column.valid.size(0);
        const bool has_nan = at::isFloatingType(column.tensor.scalar_type());
        column.tensor.masked_fill_(column.valid.logical_not().view(shape),
                                   has_nan ? std::numeric_limits<double>::quiet_NaN() : 0.0);
        if (has_nan) {
            column.valid = at::Tensor();
        }
    }

    std::string name_;
    std::string file_;
    std::int64_t first_row_;
};

/// Converts these columns of a table to a batch. `first_row`: the number in `file` of its first
/// row. Throws DataError [RT-D40] to [RT-D42].
[[nodiscard]] inline data::Batch batch_of(const arrow::Table& table,
                                          const std::vector<std::string>& names,
                                          const std::string& file, std::int64_t first_row) {
    data::Batch::Columns columns;
    data::Batch::RaggedColumns ragged;
    data::Batch::Columns masks;
    for (const std::string& name : names) {
        const auto column = table.GetColumnByName(name);
        const auto& chunks = column->chunks();
        auto array =
            chunks.size() == 1 ? arrow::Result<std::shared_ptr<arrow::Array>>(chunks.front())
            : chunks.empty()   ? arrow::MakeEmptyArray(column->type(), ArrowMemory::instance())
                               : arrow::Concatenate(chunks, ArrowMemory::instance());
        if (!array.ok()) { // more bytes than Arrow's offsets can count
            throw DataError("RT-D42",
                            concat("column \"", name, "\" of ", file, ", rows from ", first_row,
                                   ", cannot be held: ", array.status().message(),
                                   "; write smaller row groups"));
        }
        auto values = ArrowColumn(name, file, first_row).values(*std::move(array));
        if (values.tensor.defined()) {
            columns.emplace_back(name, std::move(values.tensor));
        } else {
            ragged.emplace_back(name, std::move(values.ragged));
        }
        if (values.valid.defined()) {
            masks.emplace_back(name, std::move(values.valid));
        }
    }
    return {std::move(columns), std::move(ragged), std::move(masks)};
}

} // namespace rtrain::detail
