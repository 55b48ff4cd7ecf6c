// SPDX-License-Identifier: Apache-2.0
/// @file
/// The two data policies for map-style data sets.
#pragma once

#include <rtrain/data/policy.hpp>
#include <rtrain/data/sampler.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rtrain::data {

/// Ranks split the rows between them, as torch.utils.data.DistributedSampler does.
struct Sharded {
    [[nodiscard]] at::Tensor order(const EpochRequest& epoch) const {
        return distributed_order(epoch);
    }
    [[nodiscard]] std::int64_t ranks_sharing(int size) const noexcept { return size; }
};

/// Every rank reads all rows, in the same order.
struct Replicated {
    [[nodiscard]] at::Tensor order(EpochRequest epoch) const {
        epoch.rank = 0;
        epoch.size = 1;
        return distributed_order(epoch);
    }
    [[nodiscard]] std::int64_t ranks_sharing(int /*size*/) const noexcept { return 1; }
};

static_assert(DataPolicy<Sharded> && DataPolicy<Replicated>);

} // namespace rtrain::data
