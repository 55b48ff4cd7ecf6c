// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which rows a rank reads next, batch by batch, in an epoch that may have been entered in the
/// middle. row_feeds.hpp and stream_feed.hpp have those that there are.
#pragma once

#include <rtrain/data/any_policy.hpp>
#include <rtrain/data/batch.hpp>
#include <rtrain/data/block_index.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/data/position.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::data {

class LaneSteps;
class Uncounted;
class WindowMemory; // window_memory.hpp
struct LaneStep;
struct StreamPlan; // stream_reader.hpp

/// How a rank goes through an epoch.
struct Course {
    EpochRequest epoch;
    std::int64_t size = 1;   ///< rows of a batch
    std::int64_t passes = 1; ///< batches that this rank takes in a step
    /// How many ranks split the rows; this rank is one of them, or reads everything.
    std::int64_t sharing = 1;
    /// Of a data set that is read in blocks; null: by row number.
    std::shared_ptr<const BlockIndex> blocks = nullptr;
    std::int64_t memory_bytes = 0; ///< for what is kept of these
    /// Of epochs before this one, for what is kept of these; may be null.
    std::shared_ptr<WindowMemory> memory = nullptr;
    /// Of rows that are not counted; `rows` and `blocks` are of what they are made of. They go on
    /// at `lanes`; none: at the beginning.
    std::shared_ptr<const Uncounted> uncounted = nullptr;
    std::vector<LanePlace> lanes = {};
    std::int64_t threads = 0; ///< that read ahead
    std::uint64_t content =
        0; ///< of the data set, or what its rows are made of: Dataset::content()

    [[nodiscard]] std::int64_t place_among_sharing() const noexcept {
        return sharing > 1 ? epoch.rank : 0;
    }
};

/// One batch to be read.
struct Portion {
    at::Tensor rows = {};   ///< by number; undefined where there are places
    std::int64_t place = 0; ///< of its first row in the order of all ranks
    std::int64_t taken = 0; ///< by all ranks, in whole steps, once this batch is
    bool ends_step = true;  ///< this rank's last one of the step
    double weight = 1;      ///< Steps::weight()
    std::shared_ptr<StreamPlan> plan = nullptr; ///< of a StreamFeed over blocks
    // Of LaneSteps.
    std::int64_t number = 0;                        ///< in the order of reading
    std::int64_t pass = 0;                          ///< of the step
    bool is_short = false;                          ///< it has too few rows to be taken
    std::shared_ptr<const LaneStep> step = nullptr; ///< once the first pass was read
};

/// next() is for the thread of the loop; read() and read_ahead() are for any threads.
class Feed {
public:
    Feed() = default;
    Feed(const Feed&) = delete;
    Feed& operator=(const Feed&) = delete;
    virtual ~Feed() = default;

    /// What to read next; empty at the end of the epoch. Where rows are not counted, lanes() says
    /// that.
    [[nodiscard]] virtual std::optional<Portion> next() = 0;
    /// What next() has said; once it is read, the portion holds no windows any more.
    [[nodiscard]] virtual Batch read(const Dataset& dataset, Portion& portion) = 0;
    /// Batches from here to the end of the epoch. Throws DataError [RT-D71] where rows are not
    /// counted.
    [[nodiscard]] virtual std::int64_t batches() const = 0;

    /// Rows that ranks have taken twice so far, so that all have equally many.
    [[nodiscard]] virtual std::int64_t repeated() const { return 0; }

    /// Before threads read: makes what they share.
    virtual void begin_reading() {}
    /// Something that a later portion will need. False when there is nothing to do now.
    [[nodiscard]] virtual bool read_ahead() { return false; }

    /// Null where rows are counted; else each batch that was read has to be settled, in order.
    [[nodiscard]] virtual LaneSteps* lanes() noexcept { return nullptr; }
    /// How far lanes are, where rows are not counted.
    [[nodiscard]] virtual std::vector<LanePlace> places() const { return {}; }
};

/// Of an epoch in which all ranks have taken `taken` rows. Throws what `policy` throws, DataError
/// [RT-D7, RT-D20, RT-D22].
[[nodiscard]] std::unique_ptr<Feed> make_feed(const AnyPolicy& policy, const Course& course,
                                              std::int64_t taken);
/// What a position in it counts in, by which it is known again; empty: the policy has no name.
[[nodiscard]] std::string order_of(const AnyPolicy& policy, const Course& course);

} // namespace rtrain::data
