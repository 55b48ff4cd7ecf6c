// SPDX-License-Identifier: Apache-2.0
/// @file
/// Columns of a batch as numbers: for preprocessors, and for models of tables.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/ragged.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::detail {

[[nodiscard]] inline DataError wrong_column(const std::string& name, std::string_view is,
                                            std::string_view expected) {
    return DataError("RT-D56", concat("column \"", name, "\" ", is, "; expected ", expected));
}

[[nodiscard]] inline bool is_ragged(const data::Batch& batch, const std::string& name) {
    return std::ranges::any_of(batch.ragged_columns(),
                               [&](const auto& column) { return column.first == name; });
}

/// Reshapes a tensor of one value per row to broadcast against `like`.
[[nodiscard]] inline at::Tensor as_rows(const at::Tensor& values, const at::Tensor& like) {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
    shape.front() = values.size(0);
    return values.view(shape);
}

/// Returns the column `name`, which must hold real numbers. Throws DataError [RT-D2, RT-D56].
[[nodiscard]] inline const at::Tensor& numeric_column(const data::Batch& batch,
                                                      const std::string& name) {
    if (is_ragged(batch, name)) {
        throw wrong_column(name, "is ragged", "equally many numbers in each row");
    }
    const at::Tensor& column = batch[name];
    if (column.is_complex()) {
        throw wrong_column(name, "is complex", "real numbers");
    }
    return column;
}

/// Same as double, with NaN in rows without a value.
[[nodiscard]] inline at::Tensor numbers(const data::Batch& batch, const std::string& name) {
    const at::Tensor values = numeric_column(batch, name).to(at::kDouble);
    const at::Tensor valid = batch.valid(name);
    return valid.defined() ? values.masked_fill(as_rows(valid.logical_not(), values),
                                                std::numeric_limits<double>::quiet_NaN())
                           : values;
}

} // namespace rtrain::detail

namespace rtrain::data {

/// Returns columns side by side, of shape (rows, width): columns with more dimensions are flattened
/// per row. In a floating-point `type`, rows without a value have NaN. Throws DataError
/// [RT-D2, RT-D56].
[[nodiscard]] inline at::Tensor
numeric_rows(const Batch& batch, const std::vector<std::string>& names, at::ScalarType type) {
    std::vector<at::Tensor> columns;
    std::int64_t width = 0;
    for (const std::string& name : names) {
        const at::Tensor& column = detail::numeric_column(batch, name);
        columns.push_back(column.dim() == 1 ? column.unsqueeze(1) : column.flatten(1));
        width += columns.back().size(1);
    }
    at::Tensor rows = at::empty({batch.size(), width}, columns.front().options().dtype(type));
    std::int64_t at = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
        at::Tensor place = rows.narrow(1, at, columns[i].size(1));
        place.copy_(columns[i]);
        if (const at::Tensor valid = batch.valid(names[i]);
            valid.defined() && at::isFloatingType(type)) {
            place.masked_fill_(detail::as_rows(valid.logical_not(), place),
                               std::numeric_limits<double>::quiet_NaN());
        }
        at += columns[i].size(1);
    }
    return rows;
}

} // namespace rtrain::data
