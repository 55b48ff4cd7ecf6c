// SPDX-License-Identifier: Apache-2.0
/// @file
/// The data policy for data sets that are read as training goes: see docs/data-order.md.
#pragma once

#include <rtrain/data/permuted.hpp>
#include <rtrain/data/policy.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rtrain::data {

/// Reads a data set that comes in blocks (from_blocks(), and the readers of files) from its
/// beginning to its end in `lanes` places at a time, each block once an epoch, in bounded memory.
/// All ranks together go through one order, which stream_order.hpp describes: shuffled blocks, and
/// shuffled rows in windows of each lane. Rank r of n has the rows of every n-th place. So:
///
/// - The rows of a step do not depend on the number of ranks, as long as ranks × size stays the
///   same; each row is read once an epoch; any place is entered without what lies before its
///   windows.
/// - Ranks whose number divides `lanes` share no lane, and nothing is read twice. With more ranks
///   than lanes there are as many lanes as the next multiple.
/// - BatchOptions::memory_bytes bounds what a rank keeps. More of it makes windows larger and
///   shuffles better; it is part of the order.
///
/// Rows that are not counted (Dataset::filter(), flat_map(), from_generator()) come in batches of
/// which all ranks take equally many; a loop over them is *collective*. docs/data-order.md says
/// which rows those are.
///
/// With `shuffle = false` blocks and rows are as they come, but lanes still take turns. Data sets
/// that are read by row number have the order of Permuted.
///
/// @code
/// rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Streaming> trainer(options);
/// @endcode
struct Streaming {
    /// Part of every saved position. Another order needs another name.
    static constexpr const char* name = "streaming";

    /// How many places of the data set are read side by side; at least 1 (DataError [RT-D22]).
    std::int64_t lanes = 24;

    /// For data sets that are read by row number.
    [[nodiscard]] at::Tensor rows_at(const EpochRequest& epoch, std::int64_t begin,
                                     std::int64_t end) const {
        return Permuted{}.rows_at(epoch, begin, end);
    }
    /// For data without blocks: as Sharded.
    [[nodiscard]] at::Tensor order(const EpochRequest& epoch) const {
        return Permuted{}.order(epoch);
    }
    /// All of `size` ranks divide the rows.
    [[nodiscard]] std::int64_t ranks_sharing(int size) const noexcept { return size; }
};

static_assert(DataPolicy<Streaming> && detail::HasLanes<Streaming>);

} // namespace rtrain::data
