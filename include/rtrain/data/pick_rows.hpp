// SPDX-License-Identifier: Apache-2.0
/// @file
/// A batch of rows that lie here and there in several others, copied once. The others are on the
/// CPU, contiguous, and have the same columns (DataError [RT-D19]).
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch.hpp>
#include <rtrain/data/gather.hpp>
#include <rtrain/data/ragged.hpp>
#include <rtrain/data/rows.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Rows of `bytes` bytes each; `Fixed`: the same number, where the compiler knows it.
template <std::size_t Fixed = 0>
void copy_rows(const std::vector<const std::byte*>& from, const std::vector<data::PartRow>& rows,
               std::size_t bytes, std::byte* target) {
    const std::size_t size = Fixed == 0 ? bytes : Fixed;
    for (const auto& [part, row] : rows) {
        std::memcpy(target,
                    from[static_cast<std::size_t>(part)] + static_cast<std::size_t>(row) * size,
                    size);
        target += size;
    }
}

/// These rows of tensors of one type, which have rows of one shape. `allocate(shape, options)`
/// gives the tensor that they are put into.
template <class Allocate>
[[nodiscard]] at::Tensor pick_rows(const std::vector<const at::Tensor*>& parts,
                                   const std::vector<data::PartRow>& rows, Allocate& allocate) {
    auto shape = parts.front()->sizes().vec();
    shape.front() = static_cast<std::int64_t>(rows.size());
    at::Tensor picked = allocate(shape, parts.front()->options());
    if (picked.numel() == 0) {
        return picked;
    }
    std::vector<const std::byte*> from;
    for (const at::Tensor* const part : parts) {
        from.push_back(static_cast<const std::byte*>(part->const_data_ptr()));
    }
    auto* const target = static_cast<std::byte*>(picked.mutable_data_ptr());
    const std::size_t bytes = picked.nbytes() / rows.size();
    switch (bytes) {
    case 1:
        copy_rows<1>(from, rows, bytes, target);
        break;
    case 4:
        copy_rows<4>(from, rows, bytes, target);
        break;
    case 8:
        copy_rows<8>(from, rows, bytes, target);
        break;
    default:
        copy_rows(from, rows, bytes, target);
    }
    return picked;
}

template <class Allocate>
[[nodiscard]] data::Ragged pick_rows(const std::vector<const data::Ragged*>& parts,
                                     const std::vector<data::PartRow>& rows, Allocate& allocate) {
    struct Part {
        const std::byte* values;
        const std::int64_t* begin;
    };
    std::vector<Part> from;
    for (const data::Ragged* const part : parts) {
        from.push_back({static_cast<const std::byte*>(part->values.const_data_ptr()),
                        part->offsets.const_data_ptr<std::int64_t>()});
    }
    at::Tensor offsets =
        allocate({static_cast<std::int64_t>(rows.size()) + 1}, at::TensorOptions(at::kLong));
    auto* const offset = offsets.mutable_data_ptr<std::int64_t>();
    offset[0] = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto* const begin = from[static_cast<std::size_t>(rows[i].part)].begin + rows[i].row;
        offset[i + 1] = offset[i] + begin[1] - begin[0];
    }
    const at::Tensor& first = parts.front()->values;
    auto shape = first.sizes().vec();
    shape.front() = 1;
    const auto element = static_cast<std::int64_t>(first.element_size()) *
                         c10::multiply_integers(shape.begin(), shape.end());
    shape.front() = offset[rows.size()];
    at::Tensor values = allocate(shape, first.options());
    auto* const target = static_cast<std::byte*>(values.mutable_data_ptr());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const Part& part = from[static_cast<std::size_t>(rows[i].part)];
        if (const auto bytes = static_cast<std::size_t>((offset[i + 1] - offset[i]) * element)) {
            std::memcpy(target + offset[i] * element,
                        part.values + part.begin[rows[i].row] * element, bytes);
        }
    }
    return {std::move(values), std::move(offsets)};
}

[[nodiscard]] inline const at::Tensor& rows_tensor(const at::Tensor& column) {
    return column;
}
[[nodiscard]] inline const at::Tensor& rows_tensor(const data::Ragged& column) {
    return column.values;
}

/// `columns_of(batch)` of all batches: the rows of each column.
template <class Columns, class ColumnsOf, class Allocate>
[[nodiscard]] Columns pick_columns(const std::vector<const data::Batch*>& batches,
                                   const std::vector<data::PartRow>& rows, ColumnsOf columns_of,
                                   Allocate& allocate) {
    using Column = typename Columns::value_type::second_type;
    const Columns& first = columns_of(*batches.front());
    Columns picked;
    for (std::size_t i = 0; i < first.size(); ++i) {
        const auto& [name, column] = first[i];
        std::vector<const Column*> parts;
        for (const data::Batch* const batch : batches) {
            const Columns& others = columns_of(*batch);
            const bool is_there = others.size() == first.size() && others[i].first == name;
            if (!is_there ||
                rows_tensor(others[i].second).scalar_type() != rows_tensor(column).scalar_type() ||
                rows_tensor(others[i].second).sizes().slice(1) !=
                    rows_tensor(column).sizes().slice(1)) {
                throw DataError(
                    "RT-D19",
                    concat("rows of different columns cannot be in one batch: column \"", name,
                           is_there ? "\" has another type or shape in some of them"
                                    : "\" is not in all of them, or not in the same place",
                           "; give all files and all rows the same columns, in the same order"));
            }
            parts.push_back(&others[i].second);
        }
        picked.emplace_back(name, pick_rows(parts, rows, allocate));
    }
    return picked;
}

} // namespace rtrain::detail

namespace rtrain::data {

/// Row i is row `rows[i].row` of `*batches[rows[i].part]`. There is at least one batch.
/// `allocate(shape, options)` gives the tensors that rows are put into, contiguous ones: of each
/// column, of the values and offsets of each ragged column, of each mask, in this order.
template <class Allocate>
[[nodiscard]] Batch pick_rows(const std::vector<const Batch*>& batches,
                              const std::vector<PartRow>& rows, Allocate&& allocate) {
    for (const Batch* const batch : batches) { // pick_columns() compares with the first
        if (batch->columns().size() != batches.front()->columns().size() ||
            batch->ragged_columns().size() != batches.front()->ragged_columns().size()) {
            throw DataError("RT-D19", "rows of different columns cannot be in one batch; give all "
                                      "files and all rows the same columns, in the same order");
        }
    }
    auto columns = detail::pick_columns<Batch::Columns>(
        batches, rows, [](const Batch& batch) -> auto& { return batch.columns(); }, allocate);
    auto ragged = detail::pick_columns<Batch::RaggedColumns>(
        batches, rows, [](const Batch& batch) -> auto& { return batch.ragged_columns(); },
        allocate);
    Batch::Columns masks;
    for (const auto& [name, parts] : masks_of_any(batches)) {
        std::vector<const at::Tensor*> pointers;
        for (const at::Tensor& part : parts) {
            pointers.push_back(&part);
        }
        masks.emplace_back(name, detail::pick_rows(pointers, rows, allocate));
    }
    return {std::move(columns), std::move(ragged), std::move(masks)};
}

/// The same, in memory of their own.
[[nodiscard]] inline Batch pick_rows(const std::vector<const Batch*>& batches,
                                     const std::vector<PartRow>& rows) {
    return pick_rows(batches, rows, [](at::IntArrayRef shape, const at::TensorOptions& options) {
        return at::empty(shape, options);
    });
}

} // namespace rtrain::data
