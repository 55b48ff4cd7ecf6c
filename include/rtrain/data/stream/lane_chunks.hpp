// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads lanes with an unknown number of rows and applies functions to them, chunk by chunk, on any
/// number of threads.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/dataset/unsized.hpp>
#include <rtrain/data/order/steps.hpp>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Consecutive rows of a lane.
struct LaneRows {
    Batch batch;
    std::int64_t begin = 0; ///< of the lane, from 0
    std::int64_t end = 0;
};
/// Returns the next rows of a lane; empty at its end.
using NextLaneRows = std::function<std::optional<LaneRows>()>;

/// The input of lanes, and the functions applied to it.
struct Lanes {
    std::shared_ptr<const UnsizedDataset> uncounted;
    /// Reads a lane from a row on, or from an earlier one.
    std::function<NextLaneRows(std::int64_t lane, std::int64_t first_row)> open;
};

/// Lanes of an order of `rows` positions in which row r of lane l has position r × lanes + l. They
/// are read in chunks of `chunk` rows, which are the same wherever a pass begins.
[[nodiscard]] Lanes lanes_of_places(std::shared_ptr<const UnsizedDataset> uncounted,
                                    std::int64_t lanes, std::int64_t rows, std::int64_t chunk,
                                    std::function<Batch(const StridedPlaces&)> read);
/// Lanes read from a generator.
[[nodiscard]] Lanes lanes_of_generator(const std::shared_ptr<const UnsizedDataset>& uncounted,
                                       const GeneratorRequest& epoch);

/// The results of functions on consecutive rows of a lane.
struct LaneChunk {
    std::shared_ptr<const Batch> batch = nullptr;
    std::vector<std::int64_t> of = {}; ///< the lane's row from which each row of `batch` was made
    std::int64_t end = 0;              ///< of the rows read from the lane
};

/// The chunks of several lanes, each in order. One thread at a time holds the turn and takes them;
/// the others meanwhile read ahead for it. A lane is read by one thread at a time.
class LaneChunks {
public:
    /// Up to `ahead` chunks are read ahead.
    LaneChunks(Lanes from, std::int64_t ahead) : from_(std::move(from)), ahead_(ahead) {}

    /// Adds a lane, before any thread reads, in the order in which lanes are needed.
    void add(std::int64_t lane, std::int64_t first_row);

    /// Waits for turn `number`, from 0, and reads ahead meanwhile.
    void begin_turn(std::int64_t number);
    void end_turn();

    /// The next chunk of a lane; empty at its end. Rethrows the error of reading it.
    [[nodiscard]] std::optional<LaneChunk> next(std::int64_t number);

    /// Reads a chunk that will be needed. False if there is none, or enough are read. Does not
    /// throw errors of reading.
    bool read_ahead();

private:
    struct Lane {
        std::int64_t number;
        std::int64_t first_row;
        NextLaneRows rows = nullptr; ///< used by the reading thread; null: not open yet
        bool is_busy = false;        ///< a thread is reading
        bool is_ahead = false;       ///< the result below is ready, and not requested yet
        std::optional<LaneChunk> chunk = std::nullopt; ///< empty at the end
        std::exception_ptr error = nullptr;            ///< thrown by reading
    };
    using Lock = std::unique_lock<std::mutex>;

    [[nodiscard]] bool read_ahead(Lock& lock);
    void read(Lane& lane, Lock& lock);
    [[nodiscard]] std::optional<LaneChunk> made_of_next(Lane& lane) const;

    Lanes from_;
    std::int64_t ahead_;

    std::mutex mutex_; ///< guards the fields below
    std::condition_variable has_changed_;
    std::map<std::int64_t, Lane> lanes_;
    std::deque<Lane*> to_read_; ///< approximately in the order in which they are needed
    std::int64_t is_ahead_ = 0; ///< lanes read ahead, or being read
    std::int64_t turn_ = 0;
};

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/stream/lane_chunks_definitions.hpp>
#endif
