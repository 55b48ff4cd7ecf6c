// SPDX-License-Identifier: Apache-2.0
/// @file
/// The rows of a table as batches.
#pragma once

#include <rtrain/data/batch/batch_options.hpp>
#include <rtrain/data/batches.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/order/permuted.hpp>
#include <rtrain/data/order/position.hpp>

#include <cstdint>
#include <memory>

namespace rtrain::gbdt {

/// Returns batches of `size` rows: all rows of the data set, in its order, each once.
[[nodiscard]] inline data::Batches batches_in_order(const data::Dataset& rows, std::int64_t size) {
    return {data::ShardSpec{.dataset = rows.uncounted() != nullptr ? rows.counted() : rows,
                            .policy = data::Permuted{}},
            data::BatchOptions{.size = size, .each_row_once = true},
            std::make_shared<data::Position>()};
}

} // namespace rtrain::gbdt
