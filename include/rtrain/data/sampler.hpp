// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which rows a rank reads: exactly what torch.utils.data.DistributedSampler gives in Python, for
/// the same seed also in the same order. tests/data/sampler/ holds Python's own output.
#pragma once

#include <rtrain/data/policy.hpp>
#include <rtrain/error.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rtrain::data {

/// Every rank gets equally many rows: every size-th one, starting with its rank. When rows do not
/// divide evenly, the first rows of the epoch are read again, or with `drop_last` the last are left
/// out. Shuffling draws a permutation from seed + epoch. Returns int64, one dimension.
[[nodiscard]] inline at::Tensor distributed_order(const EpochRequest& epoch) {
    if (epoch.rows <= 0) {
        throw DataError("RT-D7", "the data set is empty");
    }
    at::Tensor order;
    if (epoch.shuffle) {
        auto generator =
            at::detail::createCPUGenerator(epoch.seed + static_cast<std::uint64_t>(epoch.epoch));
        order = at::randperm(epoch.rows, generator, at::TensorOptions(at::kLong));
    } else {
        order = at::arange(epoch.rows, at::kLong);
    }
    const std::int64_t size = epoch.size;
    const std::int64_t per_rank =
        epoch.drop_last ? epoch.rows / size : (epoch.rows + size - 1) / size;
    const std::int64_t total = per_rank * size;
    if (total > epoch.rows) {
        const std::int64_t copies = (total + epoch.rows - 1) / epoch.rows;
        order = order.repeat({copies});
    }
    return order.slice(0, epoch.rank, total, size).contiguous();
}

} // namespace rtrain::data
