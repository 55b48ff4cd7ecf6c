// SPDX-License-Identifier: Apache-2.0
/// @file
/// This rank's part of a data set.
#pragma once

#include <rtrain/data/batch/batch_options.hpp>
#include <rtrain/data/batches.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/order/any_policy.hpp>
#include <rtrain/data/order/policy.hpp>
#include <rtrain/data/order/steps.hpp>
#include <rtrain/data/stream/all_reduce_max.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace rtrain::data {

/// The result of `worker.dataset_shard(name)`.
class Shard {
public:
    /// Creates the position that checkpoints save.
    using Register = std::function<std::shared_ptr<Position>()>;

    /// `seed` is added to the seeds of permutations.
    Shard(ShardSpec spec, Register new_position, std::uint64_t seed = 0)
        : spec_(std::move(spec)), new_position_(std::move(new_position)), seed_(seed) {}

    /// Batches of this rank's rows, on its device.
    ///
    /// @code
    /// auto batches = worker.dataset_shard("train").batches({.size = 32, .shuffle = true});
    /// @endcode
    [[nodiscard]] Batches batches(BatchOptions options = {}) const {
        options.seed += seed_;
        return Batches(spec_, std::move(options), new_position_());
    }

    /// The whole data set, with the rows of all ranks.
    [[nodiscard]] const Dataset& dataset() const noexcept { return spec_.dataset; }
    /// The number of rows that this rank reads in an epoch. With data::Permuted and data::Streaming
    /// the last step of batches may make it one row more or fewer.
    [[nodiscard]] std::int64_t size() const {
        const int ranks = spec_.is_split ? spec_.size : 1;
        const EpochRequest epoch{spec_.dataset.size(), spec_.is_split ? spec_.rank : 0, ranks};
        if (!spec_.policy.has_rows_at()) {
            return spec_.policy.order(epoch, 0).numel();
        }
        const Steps whole{epoch.rows, epoch.rows, spec_.policy.ranks_sharing(ranks)};
        const RowRange part = whole.micro_batch(0, whole.micro_batches > 1 ? spec_.rank : 0);
        return part.end - part.begin;
    }

private:
    ShardSpec spec_;
    Register new_position_;
    std::uint64_t seed_;
};

} // namespace rtrain::data
