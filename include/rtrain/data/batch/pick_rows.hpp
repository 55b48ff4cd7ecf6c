// SPDX-License-Identifier: Apache-2.0
/// @file
/// Copies rows scattered over several batches to a new batch, in one pass. The source batches are
/// on the CPU, contiguous, and have the same columns (DataError [RT-D19]).
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/ragged.hpp>
#include <rtrain/data/batch/rows.hpp>

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Prefetches bytes that are read soon, so that they arrive in parallel. Always inlined, like its
/// callers: GCC otherwise treats it as a function without effect.
[[gnu::always_inline]] inline void prefetch(const std::byte* from, std::size_t begin,
                                            std::size_t length) {
    constexpr std::size_t line = 64; // of a cache
    constexpr int in_second_level = 2;
    for (std::size_t at = begin / line * line; at < begin + length; at += line) {
        __builtin_prefetch(from + at, 0, in_second_level);
    }
}

} // namespace rtrain::detail

namespace rtrain::data {

/// A batch that rows are repeatedly picked from: the addresses and forms of its columns.
class PickSource {
public:
    struct RaggedData {
        const std::byte* values;
        const std::int64_t* offsets;
    };

    /// The batch must outlive it, and keep its columns.
    explicit PickSource(const Batch& batch) : batch_(&batch) {
        for (const auto& [name, column] : batch.columns()) {
            columns_.push_back(static_cast<const std::byte*>(column.const_data_ptr()));
            add(name, column);
        }
        for (const auto& [name, column] : batch.ragged_columns()) {
            ragged_.push_back({static_cast<const std::byte*>(column.values.const_data_ptr()),
                               column.offsets.const_data_ptr<std::int64_t>()});
            add(name, column.values);
        }
    }

    [[nodiscard]] const Batch& batch() const noexcept { return *batch_; }
    [[nodiscard]] const std::byte* column(std::size_t i) const { return columns_[i]; }
    [[nodiscard]] const RaggedData& ragged(std::size_t i) const { return ragged_[i]; }

    /// Throws DataError [RT-D19] if rows of both cannot be in one batch.
    void require_like(const PickSource& first) const {
        if (forms_ == first.forms_ && columns_.size() == first.columns_.size()) {
            return;
        }
        if (columns_.size() != first.columns_.size() || ragged_.size() != first.ragged_.size()) {
            throw DataError("RT-D19", "rows of different columns cannot be in one batch; give all "
                                      "files and all rows the same columns, in the same order");
        }
        std::size_t i = 0;
        while (forms_[i] == first.forms_[i]) {
            ++i;
        }
        const auto& [name, type, shape] = first.forms_[i];
        if (forms_[i].name == name) {
            throw detail::unlike_rows(name, type, shape, forms_[i].type, forms_[i].shape);
        }
        throw DataError(
            "RT-D19",
            detail::concat("rows of different columns cannot be in one batch: column ", '"', name,
                           "\" is not in all of them, or not in the same position; give all files "
                           "and all rows the same columns, in the same order"));
    }

private:
    struct Form {
        std::string name;
        at::ScalarType type;
        std::vector<std::int64_t> shape; ///< of a row, or of a value if ragged
        friend bool operator==(const Form&, const Form&) = default;
    };

    void add(const std::string& name, const at::Tensor& tensor) {
        forms_.push_back({name, tensor.scalar_type(), tensor.sizes().slice(1).vec()});
    }

    const Batch* batch_;
    std::vector<const std::byte*> columns_;
    std::vector<RaggedData> ragged_;
    std::vector<Form> forms_; ///< of all of these
};

/// The source of each row of a batch, in any order: row i is row `rows[i].row` of part
/// `rows[i].part`.
class ScatteredRows {
public:
    struct Row {
        std::uint32_t part;
        std::uint32_t row;
    };
    explicit ScatteredRows(const std::vector<Row>& rows) : rows_(rows) {}

    [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }
    /// `visit(place, part, row)`
    template <class Visit>
    void each(Visit&& visit) const {
        std::size_t place = 0;
        for (const auto [part, row] : rows_) {
            visit(place++, std::size_t{part}, std::size_t{row});
        }
    }

private:
    const std::vector<Row>& rows_;
};

/// Rows at constant distances in a part, copied to rows at constant distances in the batch.
struct RowRun {
    std::size_t row = 0; ///< the first one, in the part
    std::size_t rows_apart = 1;
    std::size_t count = 0;
    std::size_t place = 0; ///< of the first one, in the batch
    std::size_t places_apart = 1;
};

/// The same, with run i in part i.
class RunsOfRows {
public:
    explicit RunsOfRows(const std::vector<RowRun>& runs) : runs_(runs) {
        for (const RowRun& run : runs) {
            size_ += run.count;
        }
    }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// Prefetches the next batch's rows, of `bytes` bytes each in parts at `from`: hardware
    /// prefetchers cannot follow this many streams.
    [[gnu::always_inline]] void prefetch(const std::vector<const std::byte*>& from,
                                         std::size_t bytes) const {
        for (std::size_t part = 0; part < runs_.size(); ++part) {
            const RowRun& run = runs_[part];
            const std::size_t length = run.count * run.rows_apart * bytes;
            detail::prefetch(from[part], run.row * bytes + length, length);
        }
    }
    template <class Visit>
    void each(Visit&& visit) const {
        for (std::size_t part = 0; part < runs_.size(); ++part) {
            const RowRun run = runs_[part];
            for (std::size_t i = 0; i < run.count; ++i) {
                visit(run.place + i * run.places_apart, part, run.row + i * run.rows_apart);
            }
        }
    }

private:
    const std::vector<RowRun>& runs_;
    std::size_t size_ = 0;
};

} // namespace rtrain::data

namespace rtrain::detail {

/// Copies rows of `bytes` bytes each; `Fixed`: the same number, if the compiler knows it.
template <std::size_t Fixed = 0, class Rows>
void copy_rows(const std::vector<const std::byte*>& from, const Rows& rows, std::size_t bytes,
               std::byte* target) {
    const std::size_t size = Fixed == 0 ? bytes : Fixed;
    if constexpr (requires { rows.prefetch(from, size); }) {
        rows.prefetch(from, size);
    }
    rows.each([&, parts = from.data()](std::size_t place, std::size_t part, std::size_t row) {
        std::memcpy(target + place * size, parts[part] + row * size, size);
    });
}

/// Picks these rows of tensors like `first`, stored at `from`. `allocate(shape, options)` returns
/// the target tensor.
template <class Rows, class Allocate>
[[nodiscard]] at::Tensor pick_rows(const at::Tensor& first,
                                   const std::vector<const std::byte*>& from, const Rows& rows,
                                   Allocate& allocate) {
    auto shape = first.sizes().vec();
    shape.front() = static_cast<std::int64_t>(rows.size());
    at::Tensor picked = allocate(shape, first.scalar_type());
    if (picked.numel() == 0) {
        return picked;
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

template <class Rows, class Allocate>
[[nodiscard]] data::Ragged pick_rows(const at::Tensor& first,
                                     const std::vector<data::PickSource::RaggedData>& from,
                                     const Rows& rows, Allocate& allocate) {
    at::Tensor offsets = allocate({static_cast<std::int64_t>(rows.size()) + 1}, at::kLong);
    auto* const offset = offsets.mutable_data_ptr<std::int64_t>();
    offset[0] = 0;
    rows.each([&](std::size_t place, std::size_t part, std::size_t row) {
        offset[place + 1] = from[part].offsets[row + 1] - from[part].offsets[row];
    });
    for (std::size_t i = 0; i < rows.size(); ++i) {
        offset[i + 1] += offset[i];
    }
    auto shape = first.sizes().vec();
    shape.front() = 1;
    const auto element = static_cast<std::int64_t>(first.element_size()) *
                         c10::multiply_integers(shape.begin(), shape.end());
    shape.front() = offset[rows.size()];
    at::Tensor values = allocate(shape, first.scalar_type());
    auto* const target = static_cast<std::byte*>(values.mutable_data_ptr());
    rows.each([&](std::size_t place, std::size_t part, std::size_t row) {
        const std::int64_t begin = offset[place];
        if (const auto bytes = static_cast<std::size_t>((offset[place + 1] - begin) * element)) {
            std::memcpy(target + begin * element,
                        from[part].values + from[part].offsets[row] * element, bytes);
        }
    });
    return {std::move(values), std::move(offsets)};
}

} // namespace rtrain::detail

namespace rtrain::data {

/// Picks these rows of the parts, of which there is at least one. `allocate(shape, type)` returns
/// contiguous target tensors: for each column, for the offsets and values of each ragged column,
/// for each mask, in this order.
template <class Rows, class Allocate>
[[nodiscard]] Batch pick_rows(const std::vector<const PickSource*>& parts, const Rows& rows,
                              Allocate&& allocate) {
    const PickSource& first = *parts.front();
    std::vector<const Batch*> batches;
    for (const PickSource* const part : parts) {
        part->require_like(first);
        batches.push_back(&part->batch());
    }
    Batch::Columns columns;
    std::vector<const std::byte*> from(parts.size());
    for (const auto& [name, column] : first.batch().columns()) {
        std::ranges::transform(parts, from.begin(),
                               [&](auto* part) { return part->column(columns.size()); });
        columns.emplace_back(name, detail::pick_rows(column, from, rows, allocate));
    }
    Batch::RaggedColumns ragged;
    for (const auto& [name, column] : first.batch().ragged_columns()) {
        std::vector<PickSource::RaggedData> data;
        for (const PickSource* const part : parts) {
            data.push_back(part->ragged(ragged.size()));
        }
        ragged.emplace_back(name, detail::pick_rows(column.values, data, rows, allocate));
    }
    Batch::Columns masks;
    for (const auto& [name, of_parts] : masks_of_any(batches)) {
        std::ranges::transform(of_parts, from.begin(), [](const at::Tensor& mask) {
            return static_cast<const std::byte*>(mask.const_data_ptr());
        });
        masks.emplace_back(name, detail::pick_rows(of_parts.front(), from, rows, allocate));
    }
    return {std::move(columns), std::move(ragged), std::move(masks)};
}

/// The same, in newly allocated memory.
template <class Rows>
[[nodiscard]] Batch pick_rows(const std::vector<const PickSource*>& parts, const Rows& rows) {
    return pick_rows(parts, rows, [](at::IntArrayRef shape, at::ScalarType type) {
        return at::detail::empty_cpu(shape, type);
    });
}

} // namespace rtrain::data
