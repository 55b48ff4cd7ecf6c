// SPDX-License-Identifier: Apache-2.0
/// @file
/// The data policy whose order can be entered anywhere: see docs/data-order.md.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/permutation.hpp>
#include <rtrain/data/policy.hpp>
#include <rtrain/data/steps.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace rtrain::data {

/// Ranks together go through one order of the rows: all ranks' batches of a step are consecutive in
/// it, and rank r has the r-th part of them. So the rows of a step do not depend on the number of
/// ranks, as long as ranks × size stays the same, and no row is read twice in an epoch.
///
/// The order is a Permutation whose key is made from seed and epoch, or with `shuffle = false` the
/// rows as they are. It takes no memory, and no time to find a place in it. Shuffled batches differ
/// from those of Sharded, which are Python's.
///
/// @code
/// rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Permuted> trainer(options);
/// @endcode
struct Permuted {
    /// Part of every saved position. Another permutation needs another name.
    static constexpr const char* name = "permuted";

    /// The rows at the places [begin, end) of the epoch's order; rank and size do not matter.
    [[nodiscard]] at::Tensor rows_at(const EpochRequest& epoch, std::int64_t begin,
                                     std::int64_t end) const {
        if (!epoch.shuffle) {
            return at::arange(begin, end, at::kLong);
        }
        const Permutation permutation(epoch.rows, hash_of(epoch.seed, epoch.epoch));
        at::Tensor rows = at::empty({end - begin}, at::kLong);
        permutation.fill(
            begin, {rows.mutable_data_ptr<std::int64_t>(), static_cast<std::size_t>(end - begin)});
        return rows;
    }

    /// All that this rank would read if the epoch were a single step.
    [[nodiscard]] at::Tensor order(const EpochRequest& epoch) const {
        if (epoch.rows <= 0) {
            throw DataError("RT-D7", "the data set is empty");
        }
        const std::int64_t size = epoch.drop_last ? epoch.rows / epoch.size : epoch.rows;
        const RowRange part =
            Steps{epoch.rows, std::max<std::int64_t>(size, 1), epoch.size, epoch.drop_last}
                .micro_batch(0, epoch.rank);
        return rows_at(epoch, part.begin, part.end);
    }
    /// All of `size` ranks divide the rows.
    [[nodiscard]] std::int64_t ranks_sharing(int size) const noexcept { return size; }
};

static_assert(DataPolicy<Permuted> && detail::HasRowsAt<Permuted>);

} // namespace rtrain::data
