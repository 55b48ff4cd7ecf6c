// SPDX-License-Identifier: Apache-2.0
/// @file
/// Determines which rows a rank reads next, batch by batch, in an epoch that may be entered in the
/// middle. row_feeds.hpp and stream_feed.hpp implement it.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/block_index.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/order/any_policy.hpp>
#include <rtrain/data/order/position.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::data {

class LaneSteps;
class UnsizedDataset;
class WindowMemory; // window_memory.hpp
struct LaneStep;
struct StreamPlan; // stream_reader.hpp

/// Settings with which a rank reads an epoch.
struct EpochPlan {
    EpochRequest epoch;
    std::int64_t size = 1;   ///< rows of a batch
    std::int64_t passes = 1; ///< batches that this rank takes in a step
    /// The number of ranks that split the rows; this rank is one of them, or reads everything.
    std::int64_t sharing = 1;
    /// The index of a data set that is read in blocks; null: rows are read by number.
    std::shared_ptr<const BlockIndex> blocks = nullptr;
    std::int64_t memory_bytes = 0; ///< limit for windows and cursors
    /// Reused from earlier epochs; may be null.
    std::shared_ptr<WindowMemory> memory = nullptr;
    /// The source of rows that are not counted; `rows` and `blocks` are then those of its input.
    /// They continue at `lanes`; empty: at the beginning.
    std::shared_ptr<const UnsizedDataset> uncounted = nullptr;
    std::vector<LanePosition> lanes = {};
    std::int64_t threads = 0;  ///< reading ahead
    std::uint64_t content = 0; ///< of the data set or its source: Dataset::content()

    [[nodiscard]] std::int64_t place_among_sharing() const noexcept {
        return sharing > 1 ? epoch.rank : 0;
    }
};

/// One batch to be read.
struct BatchRequest {
    at::Tensor rows = {};    ///< by number; undefined if read by position
    std::int64_t place = 0;  ///< of its first row in the order of all ranks
    std::int64_t taken = 0;  ///< by all ranks, in whole steps, after this batch
    bool ends_step = true;   ///< it is this rank's last one of the step
    std::int64_t passes = 0; ///< batches of this rank in the step; 0: EpochPlan::passes
    double weight = 1;       ///< Steps::weight()
    std::shared_ptr<StreamPlan> plan = nullptr; ///< if a StreamBatchSampler reads blocks
    // Used by LaneSteps.
    std::int64_t number = 0;                        ///< in reading order
    std::int64_t pass = 0;                          ///< within the step
    bool is_short = false;                          ///< it has too few rows to be taken
    std::shared_ptr<const LaneStep> step = nullptr; ///< set once the first pass was read
};

/// The loop's thread calls next(); any thread may call read() and read_ahead().
class BatchSampler {
public:
    BatchSampler() = default;
    BatchSampler(const BatchSampler&) = delete;
    BatchSampler& operator=(const BatchSampler&) = delete;
    virtual ~BatchSampler() = default;

    /// The next batch to read; empty at the end of the epoch. If rows are not counted, lanes()
    /// determines the end.
    [[nodiscard]] virtual std::optional<BatchRequest> next() = 0;
    /// Reads a portion from next() and releases its windows.
    [[nodiscard]] virtual Batch read(const Dataset& dataset, BatchRequest& portion) = 0;
    /// The number of batches from here to the end of the epoch. Throws DataError [RT-D71] if rows
    /// are not counted.
    [[nodiscard]] virtual std::int64_t batches() const = 0;

    /// The number of rows that ranks have taken twice so far to have equally many.
    [[nodiscard]] virtual std::int64_t repeated() const { return 0; }

    /// Called before threads read: creates their shared state.
    virtual void begin_reading() {}
    /// Reads something that a later portion needs. False if there is nothing to do now.
    [[nodiscard]] virtual bool read_ahead() { return false; }

    /// Null if rows are counted; else each batch that was read must be settled, in order.
    [[nodiscard]] virtual LaneSteps* lanes() noexcept { return nullptr; }
    /// The positions of the lanes if rows are not counted.
    [[nodiscard]] virtual std::vector<LanePosition> places() const { return {}; }
};

/// The feed of an epoch in which all ranks have taken `taken` rows. Throws what `policy` throws,
/// DataError [RT-D7, RT-D20, RT-D22].
[[nodiscard]] std::unique_ptr<BatchSampler> make_feed(const AnyPolicy& policy,
                                                      const EpochPlan& course, std::int64_t taken);
/// The name of the order that positions count in; empty: the policy has no name.
[[nodiscard]] std::string order_of(const AnyPolicy& policy, const EpochPlan& course);

} // namespace rtrain::data
