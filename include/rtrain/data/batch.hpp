// SPDX-License-Identifier: Apache-2.0
/// @file
/// A batch: named columns with equally many rows.
#pragma once

#include <rtrain/base/error.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

class Batch {
public:
    using Columns = std::vector<std::pair<std::string, at::Tensor>>;

    Batch() = default;
    explicit Batch(Columns columns) : columns_(std::move(columns)) {}

    /// The column `name`, shape (rows, ...). Throws DataError [RT-D2] when there is none.
    [[nodiscard]] at::Tensor& operator[](std::string_view name) {
        return columns_[index_of(name)].second;
    }
    [[nodiscard]] const at::Tensor& operator[](std::string_view name) const {
        return columns_[index_of(name)].second;
    }

    /// Number of rows.
    [[nodiscard]] std::int64_t size() const {
        return columns_.empty() ? 0 : columns_.front().second.size(0);
    }
    [[nodiscard]] const Columns& columns() const noexcept { return columns_; }

    /// The same batch on `device`.
    [[nodiscard]] Batch to(const at::Device& device) const {
        Columns moved = columns_;
        for (auto& [name, column] : moved) {
            column = column.to(device);
        }
        return Batch(std::move(moved));
    }

    /// Calls `visit(tensor)` for each column; it may replace the tensor.
    template <class Visit>
    void each_column(Visit&& visit) {
        for (auto& [name, column] : columns_) {
            visit(column);
        }
    }

private:
    [[nodiscard]] std::size_t index_of(std::string_view name) const {
        std::string names;
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            if (columns_[i].first == name) {
                return i;
            }
            names += (names.empty() ? "\"" : ", \"") + columns_[i].first + "\"";
        }
        throw DataError("RT-D2",
                        detail::concat("the batch has no column \"", name, "\"; it has ", names));
    }

    Columns columns_;
};

} // namespace rtrain::data
