// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes batches from rows of others: some rows, a range of them, or concatenated batches. On the
/// CPU. A column must be the same in all of them: ragged or not, type and shape (DataError
/// [RT-D19]).
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/ragged.hpp>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// The error for a column that has values of two types, or rows of two shapes.
[[nodiscard]] inline DataError unlike_rows(const std::string& name, at::ScalarType type,
                                           at::IntArrayRef shape, at::ScalarType other_type,
                                           at::IntArrayRef other_shape) {
    const auto form = [](at::ScalarType of, at::IntArrayRef row) {
        return concat(c10::toString(of), row.empty() ? "" : " of shape " + c10::str(row));
    };
    return {"RT-D19",
            concat("rows of different columns cannot be in one batch: column \"", name, "\" is ",
                   form(type, shape), " in some rows and ", form(other_type, other_shape),
                   " in others; convert one of them with map_batches(), or give the "
                   "readers the same .types")};
}

/// Throws DataError [RT-D19] if the rows of both do not fit in one tensor unchanged.
inline void require_like(const std::string& name, const at::Tensor& first,
                         const at::Tensor& other) {
    const auto shape = first.sizes().slice(1);
    const auto other_shape = other.sizes().slice(1);
    if (first.scalar_type() != other.scalar_type() || shape != other_shape) {
        throw unlike_rows(name, first.scalar_type(), shape, other.scalar_type(), other_shape);
    }
}

/// A column of each batch; all must have it.
template <class Column, class Of>
[[nodiscard]] data::Batch::Named<std::vector<Column>>
side_by_side(const std::vector<data::Batch>& batches, Of of) {
    data::Batch::Named<std::vector<Column>> columns;
    for (const auto& [name, column] : of(batches.front())) {
        columns.emplace_back(name, std::vector<Column>{});
    }
    for (const data::Batch& batch : batches) {
        const auto& parts = of(batch);
        bool is_same = parts.size() == columns.size();
        for (std::size_t i = 0; is_same && i < parts.size(); ++i) {
            is_same = parts[i].first == columns[i].first;
            columns[i].second.push_back(parts[i].second);
        }
        if (!is_same) {
            throw DataError("RT-D19", "rows of different columns cannot be in one batch; give all "
                                      "files and all rows the same columns, in the same order");
        }
    }
    return columns;
}

} // namespace rtrain::detail

namespace rtrain::data {

/// The rows with these numbers (int64, one dimension), in this order.
[[nodiscard]] inline Ragged select_rows(const Ragged& column, const at::Tensor& indices) {
    const at::Tensor from = column.values.contiguous();
    const at::Tensor numbers = indices.contiguous();
    const auto* const number = numbers.const_data_ptr<std::int64_t>();
    const auto* const begin = column.offsets.const_data_ptr<std::int64_t>();
    at::Tensor offsets = at::empty({numbers.numel() + 1}, at::kLong);
    auto* const offset = offsets.mutable_data_ptr<std::int64_t>();
    offset[0] = 0;
    for (std::int64_t i = 0; i < numbers.numel(); ++i) {
        offset[i + 1] = offset[i] + begin[number[i] + 1] - begin[number[i]];
    }
    auto shape = from.sizes().vec();
    shape.front() = offset[numbers.numel()];
    at::Tensor values = at::empty(shape, from.options());
    const auto element =
        static_cast<std::int64_t>(from.nbytes()) / std::max<std::int64_t>(from.size(0), 1);
    const auto* const source = static_cast<const std::byte*>(from.const_data_ptr());
    auto* const target = static_cast<std::byte*>(values.mutable_data_ptr());
    for (std::int64_t i = 0; i < numbers.numel(); ++i) {
        if (const auto bytes = static_cast<std::size_t>((offset[i + 1] - offset[i]) * element)) {
            std::memcpy(target + offset[i] * element, source + begin[number[i]] * element, bytes);
        }
    }
    return {std::move(values), std::move(offsets)};
}

[[nodiscard]] inline Batch select_rows(const Batch& batch, const at::Tensor& indices) {
    const auto selected = [&](const Batch::Columns& columns) {
        Batch::Columns rows;
        for (const auto& [name, column] : columns) {
            rows.emplace_back(name, column.index_select(0, indices));
        }
        return rows;
    };
    Batch::RaggedColumns ragged;
    for (const auto& [name, column] : batch.ragged_columns()) {
        ragged.emplace_back(name, select_rows(column, indices));
    }
    return {selected(batch.columns()), std::move(ragged), selected(batch.masks())};
}

/// The rows [begin, end). Columns share memory with the batch's, except the offsets of ragged ones.
[[nodiscard]] inline Batch slice_rows(const Batch& batch, std::int64_t begin, std::int64_t end) {
    const auto sliced = [&](const Batch::Columns& columns) {
        Batch::Columns rows;
        for (const auto& [name, column] : columns) {
            rows.emplace_back(name, column.slice(0, begin, end));
        }
        return rows;
    };
    Batch::RaggedColumns ragged;
    for (const auto& [name, column] : batch.ragged_columns()) {
        const auto* const offset = column.offsets.const_data_ptr<std::int64_t>();
        ragged.emplace_back(name,
                            Ragged{column.values.slice(0, offset[begin], offset[end]),
                                   column.offsets.slice(0, begin, end + 1).sub(offset[begin])});
    }
    return {sliced(batch.columns()), std::move(ragged), sliced(batch.masks())};
}

/// The bytes of its columns in memory.
[[nodiscard]] inline std::int64_t bytes_of(const Batch& batch) {
    std::size_t bytes = 0;
    for (const auto* const columns : {&batch.columns(), &batch.masks()}) {
        for (const auto& [name, column] : *columns) {
            bytes += column.nbytes();
        }
    }
    for (const auto& [name, column] : batch.ragged_columns()) {
        bytes += column.values.nbytes() + column.offsets.nbytes();
    }
    return static_cast<std::int64_t>(bytes);
}

/// The masks, in each batch, of columns that have one in any of these batches; all true where a
/// batch has none.
[[nodiscard]] inline Batch::Named<std::vector<at::Tensor>>
masks_of_any(const std::vector<const Batch*>& batches) {
    Batch::Named<std::vector<at::Tensor>> masks;
    for (const Batch* const masked : batches) {
        for (const auto& [name, mask] : masked->masks()) {
            if (std::ranges::any_of(
                    masks, [&name = name](const auto& known) { return known.first == name; })) {
                continue;
            }
            auto& parts = masks.emplace_back(name, std::vector<at::Tensor>{}).second;
            for (const Batch* const batch : batches) {
                const at::Tensor part = batch->valid(name);
                parts.push_back(part.defined() ? part : at::ones({batch->size()}, at::kBool));
            }
        }
    }
    return masks;
}

/// All rows of all batches, of which there is at least one.
[[nodiscard]] inline Batch concatenate(const std::vector<Batch>& batches) {
    if (batches.size() == 1) {
        return batches.front();
    }
    Batch::Columns columns;
    for (auto& [name, parts] : detail::side_by_side<at::Tensor>(
             batches, [](const Batch& batch) -> auto& { return batch.columns(); })) {
        for (const at::Tensor& part : parts) {
            detail::require_like(name, parts.front(), part);
        }
        columns.emplace_back(name, at::cat(parts));
    }
    Batch::RaggedColumns ragged;
    for (auto& [name, parts] : detail::side_by_side<Ragged>(
             batches, [](const Batch& batch) -> auto& { return batch.ragged_columns(); })) {
        std::vector<at::Tensor> values;
        std::vector<at::Tensor> offsets{at::zeros({1}, at::kLong)};
        std::int64_t before = 0;
        for (const Ragged& part : parts) {
            detail::require_like(name, parts.front().values, part.values);
            values.push_back(part.values);
            offsets.push_back(part.offsets.slice(0, 1).add(before));
            before += part.values.size(0);
        }
        ragged.emplace_back(name, Ragged{at::cat(values), at::cat(offsets)});
    }
    std::vector<const Batch*> pointers;
    for (const Batch& batch : batches) {
        pointers.push_back(&batch);
    }
    Batch::Columns masks;
    for (const auto& [name, parts] : masks_of_any(pointers)) {
        masks.emplace_back(name, at::cat(parts));
    }
    return {std::move(columns), std::move(ragged), std::move(masks)};
}

} // namespace rtrain::data
