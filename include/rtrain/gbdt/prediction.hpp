// SPDX-License-Identifier: Apache-2.0
/// @file
/// Predictions of boosted trees for batches and data sets.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/numeric_columns.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/gbdt/names.hpp>
#include <rtrain/gbdt/row_batches.hpp>
#include <rtrain/gbdt/row_block.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::gbdt {

/// Options of Booster::predict().
struct PredictOptions {
    bool margin = false; ///< sums of leaves instead of predictions of the objective
    int rounds = 0;      ///< how many rounds count; 0: all
};

/// Returns the features of a model, `names`, from a batch, in the model's order: (rows, features).
/// Other columns are ignored. Throws DataError [RT-G5] if one is missing.
[[nodiscard]] inline at::Tensor features_from(const data::Batch& batch,
                                              const std::vector<std::string>& names,
                                              at::ScalarType type) {
    std::vector<std::string> columns;
    Features found;
    for (const auto& [column, values] : batch.columns()) {
        const bool is_flat = values.dim() == 1;
        const std::string first = is_flat ? column : column + "_0";
        if (std::ranges::find(names, first) == names.end()) {
            continue;
        }
        columns.push_back(column);
        const std::int64_t width = is_flat ? 1 : values[0].numel();
        for (std::int64_t i = 0; i < width; ++i) {
            found.names.push_back(is_flat ? column : detail::concat(column, '_', i));
        }
    }
    std::vector<std::int64_t> order;
    for (const std::string& name : names) {
        const auto at = std::ranges::find(found.names, name);
        if (at == found.names.end()) {
            require_equal_features({.names = names}, found, "this table");
        }
        order.push_back(at - found.names.begin());
    }
    at::Tensor rows = data::numeric_rows(batch, columns, type);
    return found.names == names ? rows
                                : rows.index_select(1, at::tensor(order, at::kLong)).contiguous();
}

/// Returns predictions of all rows of a data set; `predict(batch)` those of a batch.
template <class Predict>
[[nodiscard]] at::Tensor predict_all(const data::Dataset& rows, const Predict& predict) {
    constexpr std::int64_t block_rows = 8192;
    const data::Batches batches = batches_in_order(rows, block_rows);
    std::vector<at::Tensor> parts;
    for (const data::Batch& batch : batches) {
        parts.push_back(predict(batch));
    }
    return at::cat(parts);
}

} // namespace rtrain::gbdt
