// SPDX-License-Identifier: Apache-2.0
/// @file
/// This rank's part of a data set, read in batches, and the place reached in it.
#pragma once

#include <rtrain/data/batch.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/data/device_prefetch.hpp>
#include <rtrain/data/policy.hpp>
#include <rtrain/data/position.hpp>
#include <rtrain/error.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

namespace rtrain::data {

struct BatchOptions {
    std::int64_t size = 256; ///< rows in a batch of this rank, at least 1
    bool shuffle = false;    ///< another permutation each epoch, the same on all ranks
    std::uint64_t seed = 0;  ///< of the permutations
    bool drop_last = false;  ///< drop rows that fill no batch or do not divide between ranks
};

/// One pass after the other over this rank's rows. Each `begin()` starts a new epoch, except the
/// first after a resumed checkpoint, which goes on where the checkpoint was taken.
template <DataPolicy D>
class Batches {
public:
    /// `position` is shared with whoever saves it. Batches are read on the CPU and sent to
    /// `device`, one ahead of the loop.
    Batches(Dataset dataset, D policy, int rank, int size, at::Device device, BatchOptions options,
            std::shared_ptr<Position> position)
        : dataset_(std::move(dataset)), policy_(std::move(policy)), rank_(rank), size_(size),
          device_(device), options_(options), position_(std::move(position)) {
        if (options.size < 1) {
            throw DataError("RT-D8", detail::concat("batches() was asked for batches of ",
                                                    options.size, " rows; expected at least 1"));
        }
    }

    class Iterator {
    public:
        using value_type = Batch;
        using difference_type = std::ptrdiff_t;

        Iterator(const Batches& batches, at::Tensor order)
            : batches_(&batches), order_(std::move(order)), pass_(batches.position_),
              prefetch_(batches.device_) {
            const std::int64_t sharing = batches.policy_.ranks_sharing(batches.size_);
            taken_ = std::min(order_.numel(), pass_.position().samples / sharing);
            row_ = taken_;
            next();
        }

        [[nodiscard]] Batch& operator*() { return batch_; }
        Iterator& operator++() {
            pass_.between_batches();
            next();
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const Iterator& self, std::default_sentinel_t /*end*/) {
            return self.batch_.size() == 0;
        }

    private:
        void next() {
            batch_ = prefetch_.next([this] { return read(); }).value_or(Batch());
            if (batch_.size() == 0) {
                pass_.end();
                return;
            }
            taken_ = std::min(order_.numel(), taken_ + batches_->options_.size);
            pass_.position().samples = taken_ * batches_->policy_.ranks_sharing(batches_->size_);
        }

        [[nodiscard]] std::optional<Batch> read() {
            const BatchOptions& options = batches_->options_;
            const std::int64_t rows = std::min(options.size, order_.numel() - row_);
            if (rows <= 0 || (options.drop_last && rows < options.size)) {
                return std::nullopt;
            }
            const at::Tensor indices = order_.slice(0, row_, row_ + rows);
            row_ += rows;
            return batches_->dataset_.rows(indices);
        }

        const Batches* batches_;
        at::Tensor order_;
        Pass pass_;
        DevicePrefetch<Batch> prefetch_;
        std::int64_t row_ = 0;   ///< the next to be read
        std::int64_t taken_ = 0; ///< rows up to the end of the current batch
        Batch batch_;
    };

    [[nodiscard]] Iterator begin() const {
        if (position_->iterating) {
            throw DataError("RT-D9", "a loop over these batches is still under way; call "
                                     "batches() again for a second, independent pass");
        }
        return Iterator(*this, order_of(position_->epoch));
    }
    [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

    /// Batches in a whole epoch of this rank.
    [[nodiscard]] std::int64_t size() const {
        const std::int64_t rows = order_of(0).numel();
        return options_.drop_last ? rows / options_.size
                                  : (rows + options_.size - 1) / options_.size;
    }

    /// The epoch that the next pass, or the one under way, has for its permutation.
    [[nodiscard]] std::int64_t epoch() const noexcept { return position_->epoch; }
    /// Reshuffles as in this epoch from the next pass on (DistributedSampler's set_epoch).
    void set_epoch(std::int64_t epoch) { *position_ = {epoch, 0, false}; }

private:
    [[nodiscard]] at::Tensor order_of(std::int64_t epoch) const {
        return policy_.order({dataset_.size(), rank_, size_, epoch, options_.shuffle, options_.seed,
                              options_.drop_last});
    }

    Dataset dataset_;
    D policy_;
    int rank_;
    int size_;
    at::Device device_;
    BatchOptions options_;
    std::shared_ptr<Position> position_;
};

/// What `worker.dataset_shard(name)` returns.
template <DataPolicy D>
class Shard {
public:
    using Register = std::function<std::shared_ptr<Position>()>;

    /// `seed` is added to those of the permutations.
    Shard(Dataset dataset, D policy, int rank, int size, at::Device device, Register new_position,
          std::uint64_t seed = 0)
        : dataset_(std::move(dataset)), policy_(std::move(policy)), rank_(rank), size_(size),
          device_(device), new_position_(std::move(new_position)), seed_(seed) {}

    /// Batches of this rank's rows, on its device.
    ///
    /// @code
    /// auto batches = worker.dataset_shard("train").batches({.size = 32, .shuffle = true});
    /// @endcode
    [[nodiscard]] Batches<D> batches(BatchOptions options = {}) const {
        options.seed += seed_;
        return Batches<D>(dataset_, policy_, rank_, size_, device_, options, new_position_());
    }

    /// The whole data set, with the rows of all ranks.
    [[nodiscard]] const Dataset& dataset() const noexcept { return dataset_; }
    /// Rows that this rank reads in an epoch.
    [[nodiscard]] std::int64_t size() const {
        EpochRequest epoch{dataset_.size(), rank_, size_};
        return policy_.order(epoch).numel();
    }

private:
    Dataset dataset_;
    D policy_;
    int rank_;
    int size_;
    at::Device device_;
    Register new_position_;
    std::uint64_t seed_;
};

} // namespace rtrain::data
