// SPDX-License-Identifier: Apache-2.0
/// @file
/// How preprocessors read and replace columns of a batch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/numeric_columns.hpp>
#include <rtrain/data/batch/ragged.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::preprocess {

/// Column names.
using Names = std::vector<std::string>;

} // namespace rtrain::preprocess

namespace rtrain::detail {

/// Output columns of a preprocessor: `columns` unless `output` is set. Throws DataError [RT-D59].
[[nodiscard]] inline preprocess::Names output_names(const preprocess::Names& columns,
                                                    preprocess::Names output) {
    if (columns.empty()) {
        throw DataError("RT-D59", "a preprocessor needs the name of at least one column");
    }
    if (!output.empty() && output.size() != columns.size()) {
        throw DataError("RT-D59",
                        concat("a preprocessor of ", columns.size(), " columns has ", output.size(),
                               " output columns; give the same number, or none"));
    }
    if (output.empty()) {
        return columns;
    }
    return output;
}

/// Throws DataError [RT-D55] unless `is_fitted`.
inline void require_fitted(bool is_fitted, std::string_view who) {
    if (!is_fitted) {
        throw DataError("RT-D55", concat(who, " was not fitted; call fit(), worker.fit(), or "
                                              "restore its state, before transform()"));
    }
}

/// The result type for a column: its own, or double if that is not a floating-point type.
[[nodiscard]] inline at::ScalarType real_type(const at::Tensor& column) {
    return column.is_floating_point() ? column.scalar_type() : at::kDouble;
}

/// A copy of a batch in which columns can be replaced, added and removed. Tensors are shared.
class ChangedBatch {
public:
    explicit ChangedBatch(const data::Batch& batch)
        : columns_(batch.columns()), ragged_(batch.ragged_columns()), masks_(batch.masks()) {}

    /// Replaces the column of this name in place, or appends it.
    void set(const std::string& name, at::Tensor column, at::Tensor valid = {}) {
        erase_from(ragged_, name);
        put(columns_, name, std::move(column));
        set_mask(name, std::move(valid));
    }
    void set(const std::string& name, data::Ragged column) {
        erase_from(columns_, name);
        put(ragged_, name, std::move(column));
        set_mask(name, {});
    }
    void erase(const std::string& name) {
        erase_from(columns_, name);
        erase_from(ragged_, name);
        erase_from(masks_, name);
    }

    [[nodiscard]] data::Batch finish() && {
        return {std::move(columns_), std::move(ragged_), std::move(masks_)};
    }

private:
    template <class T>
    static void put(data::Batch::Named<T>& columns, const std::string& name, T column) {
        const auto found =
            std::ranges::find_if(columns, [&](const auto& known) { return known.first == name; });
        if (found == columns.end()) {
            columns.emplace_back(name, std::move(column));
        } else {
            found->second = std::move(column);
        }
    }
    template <class T>
    static void erase_from(data::Batch::Named<T>& columns, const std::string& name) {
        std::erase_if(columns, [&](const auto& known) { return known.first == name; });
    }
    void set_mask(const std::string& name, at::Tensor valid) {
        if (valid.defined()) {
            put(masks_, name, std::move(valid));
        } else {
            erase_from(masks_, name);
        }
    }

    data::Batch::Columns columns_;
    data::Batch::RaggedColumns ragged_;
    data::Batch::Columns masks_;
};

} // namespace rtrain::detail
