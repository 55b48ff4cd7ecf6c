// SPDX-License-Identifier: Apache-2.0
/// @file
/// A rank's rows in batches, in consecutive passes, and the position reached in them.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/batch_options.hpp>
#include <rtrain/data/batch/batch_stats.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/order/any_policy.hpp>
#include <rtrain/data/stream/all_reduce_max.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>

namespace rtrain::data {

struct EpochPlan;
struct Position;
class WindowMemory;

/// A rank's part of a data set.
struct ShardSpec {
    Dataset dataset;
    AnyPolicy policy;
    int rank = 0;
    int size = 1;                 ///< number of ranks
    at::Device device = at::kCPU; ///< where batches are sent, one ahead of the loop
    std::optional<std::uint64_t> random_seed = std::nullopt; ///< see Batches
    bool is_split = true;         ///< if false, each rank reads all rows, whatever the policy
    AllReduceMax agree = nullptr; ///< needed for rows that are not counted
};

/// Consecutive passes through this rank's rows. Each `begin()` starts a new epoch, except the first
/// after a resumed checkpoint, which continues from the checkpoint's position, even on a different
/// number of ranks.
class Batches {
public:
    /// `position` is shared with the code that saves it. Batches are read on the CPU. With
    /// `shard.random_seed`, each batch seeds torch's generators from it and its own position in the
    /// epoch.
    Batches(ShardSpec shard, BatchOptions options, std::shared_ptr<Position> position);

private:
    class Reader; // batches_definitions.hpp

public:
    /// Reads the next batch when advanced.
    class Iterator {
    public:
        using value_type = Batch;
        using difference_type = std::ptrdiff_t;

        Iterator(Iterator&& other) noexcept;
        Iterator& operator=(Iterator&& other) noexcept;
        ~Iterator();

        [[nodiscard]] Batch& operator*();
        Iterator& operator++();
        void operator++(int) { ++*this; }
        friend bool operator==(const Iterator& self, std::default_sentinel_t /*end*/) {
            return self.is_at_end();
        }

    private:
        friend Batches;
        explicit Iterator(std::unique_ptr<Reader> reader) noexcept;
        [[nodiscard]] bool is_at_end() const noexcept;

        std::unique_ptr<Reader> reader_;
    };

    [[nodiscard]] Iterator begin() const;
    [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

    /// The number of batches in a whole epoch of this rank. Throws DataError [RT-D71] if rows are
    /// not counted.
    [[nodiscard]] std::int64_t size() const;
    /// The number of batches of this rank in a step; more than 1 only with `micro_batches`.
    [[nodiscard]] std::int64_t passes() const noexcept;
    /// The same for the step of the loop's current batch: the last step of an epoch may have fewer.
    [[nodiscard]] std::int64_t step_passes() const noexcept;
    /// True if the loop's current batch is this rank's last one in its step.
    [[nodiscard]] bool step_ends() const noexcept;

    /// Times of all passes so far; may be called during a loop.
    ///
    /// @code
    /// std::cout << to_string(batches.stats());
    /// @endcode
    [[nodiscard]] BatchStats stats() const;

    /// The epoch of the current pass, or the next one, which selects its permutation.
    [[nodiscard]] std::int64_t epoch() const noexcept;
    /// Sets the epoch of the next pass, and so its shuffle (DistributedSampler's set_epoch). A
    /// resumed run that sets the epoch of its checkpoint continues in that epoch.
    void set_epoch(std::int64_t epoch);

    /// The number of rows that the last whole pass did not read because not every rank would have
    /// had some. Only for rows that are not counted; counts the input rows of filter() and
    /// flat_map().
    [[nodiscard]] std::int64_t left_out() const noexcept;

private:
    /// The given policy, or data::Streaming if that policy would read blocks repeatedly.
    [[nodiscard]] const AnyPolicy& policy() const;
    [[nodiscard]] EpochPlan course_of(std::int64_t epoch) const;
    [[nodiscard]] std::int64_t batches_of(std::int64_t epoch) const;

    ShardSpec shard_;
    BatchOptions options_;
    std::shared_ptr<Position> position_;
    std::shared_ptr<BatchCounters> counters_;
    std::shared_ptr<WindowMemory> memory_; ///< reused across epochs
};

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/batches_definitions.hpp>
#endif
