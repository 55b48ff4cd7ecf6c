// SPDX-License-Identifier: Apache-2.0
/// @file
/// This rank's part of a data set.
#pragma once

#include <rtrain/data/all_reduce_max.hpp>
#include <rtrain/data/any_policy.hpp>
#include <rtrain/data/batch_options.hpp>
#include <rtrain/data/batches.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/data/policy.hpp>
#include <rtrain/data/steps.hpp>

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

    /// `seed` is added to the seeds of permutations; for the rest see Batches.
    Shard(Dataset dataset, AnyPolicy policy, int rank, int size, at::Device device,
          Register new_position, std::uint64_t seed = 0,
          std::optional<std::uint64_t> random_seed = std::nullopt, bool is_split = true,
          AllReduceMax agree = nullptr)
        : dataset_(std::move(dataset)), policy_(std::move(policy)), rank_(rank), size_(size),
          device_(device), new_position_(std::move(new_position)), seed_(seed),
          random_seed_(random_seed), is_split_(is_split), agree_(std::move(agree)) {}

    /// Batches of this rank's rows, on its device.
    ///
    /// @code
    /// auto batches = worker.dataset_shard("train").batches({.size = 32, .shuffle = true});
    /// @endcode
    [[nodiscard]] Batches batches(BatchOptions options = {}) const {
        options.seed += seed_;
        return Batches(dataset_, policy_, rank_, size_, device_, options, new_position_(),
                       random_seed_, is_split_, agree_);
    }

    /// The whole data set, with the rows of all ranks.
    [[nodiscard]] const Dataset& dataset() const noexcept { return dataset_; }
    /// The number of rows that this rank reads in an epoch. With data::Permuted and data::Streaming
    /// the last step of batches may make it one row more or fewer.
    [[nodiscard]] std::int64_t size() const {
        const int ranks = is_split_ ? size_ : 1;
        const EpochRequest epoch{dataset_.size(), is_split_ ? rank_ : 0, ranks};
        if (!policy_.has_rows_at()) {
            return policy_.order(epoch, 0).numel();
        }
        const Steps whole{epoch.rows, epoch.rows, policy_.ranks_sharing(ranks)};
        const RowRange part = whole.micro_batch(0, whole.micro_batches > 1 ? rank_ : 0);
        return part.end - part.begin;
    }

private:
    Dataset dataset_;
    AnyPolicy policy_;
    int rank_;
    int size_;
    at::Device device_;
    Register new_position_;
    std::uint64_t seed_;
    std::optional<std::uint64_t> random_seed_;
    bool is_split_;
    AllReduceMax agree_;
};

} // namespace rtrain::data
