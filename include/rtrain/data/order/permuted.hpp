// SPDX-License-Identifier: Apache-2.0
/// @file
/// The data policy whose order can be entered anywhere: see docs/data-order.md.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/order/permutation.hpp>
#include <rtrain/data/order/policy.hpp>
#include <rtrain/data/order/steps.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace rtrain::data {

/// All ranks together read one order of the rows. The batches of a step are consecutive in it, and
/// rank r has the r-th part of them. So the rows of a step do not depend on the number of ranks, as
/// long as ranks × size stays the same. No row is read twice in an epoch.
///
/// The order is a Permutation with a key made from seed and epoch, or the rows as they are with
/// `shuffle = false`. It takes no memory, and no time to find a position. Shuffled batches differ
/// from those of Sharded, which match Python's.
///
/// @code
/// rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Permuted> trainer(options);
/// @endcode
struct Permuted {
    /// Part of every saved position. A different permutation needs a different name.
    static constexpr const char* name = "permuted";

    /// The rows at positions [begin, end) of the epoch's order; independent of rank and size.
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

    /// The rows this rank would read if the epoch were a single step.
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
