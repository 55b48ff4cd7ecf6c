// SPDX-License-Identifier: Apache-2.0
/// @file
/// What is read for lanes of rows whose number is not known, and what functions make of it: chunk
/// by chunk, on any number of threads.
#pragma once

#include <rtrain/data/batch.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/data/steps.hpp>
#include <rtrain/data/uncounted.hpp>

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

/// Rows that follow each other in a lane.
struct LaneRows {
    Batch batch;
    std::int64_t begin = 0; ///< of the lane, from 0
    std::int64_t end = 0;
};
/// Gives the next rows of a lane; empty at its end.
using NextLaneRows = std::function<std::optional<LaneRows>()>;

/// Where lanes are read from, and what is made of it.
struct Lanes {
    std::shared_ptr<const Uncounted> uncounted;
    /// Reads a lane from a row on, or from one before it.
    std::function<NextLaneRows(std::int64_t lane, std::int64_t first_row)> open;
};

/// Lanes of an order in which row r of lane l has place r × lanes + l, of `rows` places. They are
/// read `chunk` rows at a time, and the same ones, wherever a pass begins.
[[nodiscard]] Lanes lanes_of_places(std::shared_ptr<const Uncounted> uncounted, std::int64_t lanes,
                                    std::int64_t rows, std::int64_t chunk,
                                    std::function<Batch(const StridedPlaces&)> read);
/// Lanes that a generator fills.
[[nodiscard]] Lanes lanes_of_generator(const std::shared_ptr<const Uncounted>& uncounted,
                                       const GeneratorRequest& epoch);

/// What functions made of rows that follow each other in a lane.
struct LaneChunk {
    std::shared_ptr<const Batch> batch = nullptr;
    std::vector<std::int64_t> of = {}; ///< the lane's row that each row of `batch` was made of
    std::int64_t end = 0;              ///< of the lane's rows that were read
};

/// The chunks of some lanes, each in their order. One thread at a time takes them, whose turn it
/// is; the others read meanwhile what it will need. A lane is read by one thread at a time.
class LaneChunks {
public:
    /// Up to `ahead` chunks are read before they are asked for.
    LaneChunks(Lanes from, std::int64_t ahead) : from_(std::move(from)), ahead_(ahead) {}

    /// Before any thread reads: a lane, in the order in which they will be needed.
    void add(std::int64_t lane, std::int64_t first_row);

    /// Waits until it is turn `number`, from 0, and reads ahead meanwhile.
    void begin_turn(std::int64_t number);
    void end_turn();

    /// The next chunk of a lane; empty at its end. Throws what reading it has thrown.
    [[nodiscard]] std::optional<LaneChunk> next(std::int64_t number);

    /// Reads a chunk that will be needed. False when there is none, or enough are read. Throws
    /// nothing of what reads.
    bool read_ahead();

private:
    struct Lane {
        std::int64_t number;
        std::int64_t first_row;
        NextLaneRows rows = nullptr; ///< of the thread that reads; null: not yet open
        bool is_busy = false;        ///< a thread reads
        bool is_ahead = false;       ///< what follows is there, and is not asked for yet
        std::optional<LaneChunk> chunk = std::nullopt; ///< empty at the end
        std::exception_ptr error = nullptr;            ///< what reading has thrown
    };
    using Lock = std::unique_lock<std::mutex>;

    [[nodiscard]] bool read_ahead(Lock& lock);
    void read(Lane& lane, Lock& lock);
    [[nodiscard]] std::optional<LaneChunk> made_of_next(Lane& lane) const;

    Lanes from_;
    std::int64_t ahead_;

    std::mutex mutex_; ///< of what follows
    std::condition_variable has_changed_;
    std::map<std::int64_t, Lane> lanes_;
    std::deque<Lane*> to_read_; ///< in about the order in which they will be needed
    std::int64_t is_ahead_ = 0; ///< lanes, or a thread is at it
    std::int64_t turn_ = 0;
};

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/lane_chunks_definitions.hpp>
#endif
