// SPDX-License-Identifier: Apache-2.0
/// @file
/// The two data policies for map-style data sets.
#pragma once

#include <rtrain/data/order/policy.hpp>
#include <rtrain/data/order/sampler.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rtrain::data {

/// Splits rows between ranks, as torch.utils.data.DistributedSampler does.
struct Sharded {
    static constexpr const char* name = "sharded";
    /// Blocks that fit in memory are read by row; otherwise as in Streaming.
    static constexpr bool streams_shuffled_blocks = true;
    /// This rank's rows of an epoch, after `taken` rows of all ranks: as DistributedSampler.
    [[nodiscard]] at::Tensor order(const EpochRequest& epoch, std::int64_t taken = 0) const {
        return distributed_order(epoch, taken);
    }
    /// All of `size` ranks divide the rows.
    [[nodiscard]] std::int64_t ranks_sharing(int size) const noexcept { return size; }
};

/// Every rank reads all rows, in the same order.
struct Replicated {
    static constexpr const char* name = "replicated";
    /// See Sharded.
    static constexpr bool streams_shuffled_blocks = true;
    /// All rows, after `taken`.
    [[nodiscard]] at::Tensor order(EpochRequest epoch, std::int64_t taken = 0) const {
        epoch.rank = 0;
        epoch.size = 1;
        return distributed_order(epoch, taken);
    }
    /// Each rank has all rows.
    [[nodiscard]] std::int64_t ranks_sharing(int /*size*/) const noexcept { return 1; }
};

static_assert(DataPolicy<Sharded> && DataPolicy<Replicated>);
static_assert(detail::HasRest<Sharded> && detail::HasRest<Replicated>);

} // namespace rtrain::data
