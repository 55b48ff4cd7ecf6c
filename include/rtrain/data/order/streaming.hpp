// SPDX-License-Identifier: Apache-2.0
/// @file
/// The data policy for data sets that are read during training: see docs/data-order.md.
#pragma once

#include <rtrain/data/order/permuted.hpp>
#include <rtrain/data/order/policy.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rtrain::data {

/// Reads a data set in blocks (from_blocks(), and the readers of files) from beginning to end at
/// `lanes` positions in parallel. Each block is read once an epoch, in bounded memory. All ranks
/// together read one order, described in stream_order.hpp: shuffled blocks, and shuffled rows in
/// windows of each lane. Rank r of n reads every n-th position. So:
///
/// - The rows of a step do not depend on the number of ranks, as long as ranks × size stays the
///   same. Each row is read once an epoch. Any position can be entered without reading what is
///   before its windows.
/// - Ranks whose number divides `lanes` share no lane, and nothing is read twice. With more ranks
///   than lanes, the number of lanes is the next multiple.
/// - BatchOptions::memory_bytes bounds the memory of a rank. More memory makes windows larger and
///   shuffles better; it is part of the order.
///
/// Rows that are not counted (Dataset::filter(), flat_map(), from_generator()) are read in equally
/// many batches on all ranks; a loop over them is *collective*. docs/data-order.md specifies these
/// rows.
///
/// With `shuffle = false` blocks and rows keep their order, but lanes still take turns. Data sets
/// that are read by row number have the order of Permuted.
///
/// @code
/// rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Streaming> trainer(options);
/// @endcode
struct Streaming {
    /// Part of every saved position. A different order needs a different name.
    static constexpr const char* name = "streaming";

    /// The number of positions of the data set read in parallel; at least 1 (DataError [RT-D22]).
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
