// SPDX-License-Identifier: Apache-2.0
/// @file
/// A batch: named columns with the same number of rows.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/ragged.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Rows of a data set as named columns, each a tensor whose first dimension counts rows, or Ragged.
class Batch {
public:
    template <class T>
    using Named = std::vector<std::pair<std::string, T>>; ///< values by name, ordered
    using Columns = Named<at::Tensor>;                    ///< one tensor each
    using RaggedColumns = Named<Ragged>;                  ///< rows of different lengths

    Batch() = default;
    explicit Batch(Columns columns) : columns_(std::move(columns)) {}
    /// `masks` are bool of shape (rows), for columns in which some rows have no value.
    Batch(Columns columns, RaggedColumns ragged, Columns masks = {})
        : columns_(std::move(columns)), ragged_(std::move(ragged)), masks_(std::move(masks)) {}

    /// The column `name`, shape (rows, ...). Throws DataError [RT-D2] if it does not exist.
    [[nodiscard]] at::Tensor& operator[](std::string_view name) {
        return const_cast<at::Tensor&>(std::as_const(*this)[name]);
    }
    [[nodiscard]] const at::Tensor& operator[](std::string_view name) const {
        const auto* const found = find(columns_, name);
        return found ? *found : throw missing(name);
    }

    /// The column `name` whose rows have different lengths. Throws DataError [RT-D2].
    [[nodiscard]] const Ragged& ragged(std::string_view name) const {
        const auto* const found = find(ragged_, name);
        return found ? *found : throw missing(name);
    }

    /// The mask of rows that have a value: bool of shape (rows), or undefined if all have. A column
    /// of floats has NaN instead, and no mask. Throws DataError [RT-D2].
    [[nodiscard]] at::Tensor valid(std::string_view name) const {
        if (!find(columns_, name) && !find(ragged_, name)) {
            throw missing(name);
        }
        const auto* const mask = find(masks_, name);
        return mask ? *mask : at::Tensor();
    }

    /// Number of rows.
    [[nodiscard]] std::int64_t size() const {
        return !columns_.empty()  ? columns_.front().second.size(0)
               : !ragged_.empty() ? ragged_.front().second.size()
                                  : 0;
    }
    [[nodiscard]] const Columns& columns() const noexcept { return columns_; } ///< all tensors
    /// All columns whose rows differ in length.
    [[nodiscard]] const RaggedColumns& ragged_columns() const noexcept { return ragged_; }
    /// The masks of rows that have a value, by column.
    [[nodiscard]] const Columns& masks() const noexcept { return masks_; }

    /// The same batch on `device`.
    [[nodiscard]] Batch to(const at::Device& device) const {
        Batch moved = *this;
        moved.each_column([&](at::Tensor& tensor) { tensor = tensor.to(device); });
        return moved;
    }

    /// Calls `visit(tensor)` for each tensor of each column; it may replace the tensor.
    template <class Visit>
    void each_column(Visit&& visit) {
        for (auto& [name, column] : columns_) {
            visit(column);
        }
        for (auto& [name, column] : ragged_) {
            visit(column.values);
            visit(column.offsets);
        }
        for (auto& [name, mask] : masks_) {
            visit(mask);
        }
    }

private:
    template <class T>
    [[nodiscard]] static const T* find(const Named<T>& columns, std::string_view name) noexcept {
        const auto found =
            std::ranges::find_if(columns, [&](const auto& column) { return column.first == name; });
        return found == columns.end() ? nullptr : &found->second;
    }

    [[nodiscard]] DataError missing(std::string_view name) const {
        const auto names_of = [](const auto& columns, std::string_view before) {
            std::string names;
            for (const auto& [of, column] : columns) {
                names += detail::concat(names.empty() ? before : ", ", '"', of, '"');
            }
            return names;
        };
        return DataError("RT-D2",
                         detail::concat("the batch has no ", find(columns_, name) ? "ragged " : "",
                                        "column \"", name, "\"; it has ", names_of(columns_, ""),
                                        names_of(ragged_, "; with batch.ragged(): ")));
    }

    Columns columns_;
    RaggedColumns ragged_;
    Columns masks_;
};

} // namespace rtrain::data
