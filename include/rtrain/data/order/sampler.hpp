// SPDX-License-Identifier: Apache-2.0
/// @file
/// The rows that a rank reads: exactly those of torch.utils.data.DistributedSampler in Python, for
/// the same seed also in the same order. tests/fixtures/sampler/ holds Python's own output.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/data/order/policy.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace rtrain::data {

/// The number of rows that ranks have taken at the end of an epoch, including repeated ones.
[[nodiscard]] inline std::int64_t distributed_end(const EpochRequest& epoch, std::int64_t taken) {
    const std::int64_t size = epoch.size;
    const std::int64_t left = std::max<std::int64_t>(epoch.rows - taken, 0);
    if (epoch.each_once && !epoch.drop_last) {
        return taken + left;
    }
    return taken + (epoch.drop_last ? left / size : (left + size - 1) / size) * size;
}

/// True if ranks with one row more than others take it in their last batch, of size + 1 rows, so
/// that all have equally many batches. Only a rank without rows has fewer.
[[nodiscard]] inline bool last_batch_grows(const EpochRequest& epoch, std::int64_t taken,
                                           std::int64_t batch_size) {
    const std::int64_t left = std::max<std::int64_t>(epoch.rows - taken, 0);
    const std::int64_t share = left / epoch.size;
    return epoch.each_once && !epoch.drop_last && left % epoch.size != 0 && share > 0 &&
           share % batch_size == 0;
}

/// Every rank gets equally many rows: every size-th one, starting with its rank. If rows do not
/// divide evenly, the first rows of the epoch are read again, or with `drop_last` the last are left
/// out. With `each_once` none is read again, and the last ranks have one less. Shuffling draws a
/// permutation from seed + epoch. Returns int64, one dimension.
///
/// After any number of ranks have together taken the first `taken` rows of the order, the rest is
/// dealt out in the same way.
[[nodiscard]] at::Tensor distributed_order(const EpochRequest& epoch, std::int64_t taken = 0);

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/order/sampler_definitions.hpp>
#endif
