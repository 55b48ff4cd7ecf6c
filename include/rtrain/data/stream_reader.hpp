// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads the rows at places of a streamed epoch, each window of a lane once, with any number of
/// threads.
#pragma once

#include <rtrain/data/batch.hpp>
#include <rtrain/data/block_index.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/data/steps.hpp>
#include <rtrain/data/stream_order.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace rtrain::data {

/// The lanes and windows in which ranks stream these blocks. Half of `memory_bytes` holds one
/// window of each lane, so a window has memory_bytes / (2 × lanes) bytes by the index, but no more
/// rows than a lane. With more ranks than `lanes`, lanes are the next multiple. Throws DataError:
/// RT-D20 when that is not enough for a row of some block, RT-D22 when `lanes` is less than 1.
[[nodiscard]] StreamShape stream_shape(const BlockIndex& blocks, std::int64_t lanes,
                                       std::int64_t ranks, std::int64_t memory_bytes);

/// The number of lanes in which `ranks` read: `lanes`, or the next multiple of that. Throws
/// DataError [RT-D22] when `lanes` is less than 1.
[[nodiscard]] std::int64_t used_lanes(std::int64_t lanes, std::int64_t ranks);

class WindowMemory; // window_memory.hpp

/// What a batch takes from which windows. As long as it lives, they stay in memory.
struct StreamPlan;

/// What of `memory_bytes` is taken for what:
///
/// - a half for windows, one of each lane: all of it on one rank, the n-th part on n ranks whose
///   number divides lanes. While it is put together, a window is there twice, as it came and in one
///   piece;
/// - a quarter for cursors that keep memory (Dataset::BlockSource::Cursor::bytes()). A cursor
///   beyond it is closed with its window and opened anew for the next one, so a source without
///   cursors of its own reads such a block again for each window. Where several threads would have
///   more than 3/8 in cursors, they read one after the other;
/// - what is left, but for an eighth, for windows that are read ahead, at most one of each lane;
/// - the rest is room for the blocks that are being read, one in each thread, and for batches.
///
/// Lanes are read side by side by as many threads as call rows() or read_ahead(), each lane by one
/// at a time and from its beginning to its end.
class StreamReader {
public:
    /// `memory`: what readers before this one have left for it; null: nothing.
    StreamReader(std::shared_ptr<const BlockIndex> blocks, StreamOrder order,
                 std::int64_t memory_bytes, std::shared_ptr<WindowMemory> memory = nullptr);
    StreamReader(const StreamReader&) = delete;
    StreamReader& operator=(const StreamReader&) = delete;
    ~StreamReader();

    /// What rows() is to read: the rows at these places, in their order. Plans are made one after
    /// the other in the order of places. A window is dropped when a later one of its lane is
    /// needed, but with `kept_from` only if it lies before that place.
    [[nodiscard]] std::shared_ptr<StreamPlan>
    plan(const StridedPlaces& places, std::optional<std::int64_t> kept_from = std::nullopt);

    /// Once for each plan, called by any threads. Throws DataError [RT-D18, RT-D19], and what the
    /// source throws; what reading a window has thrown is thrown for each batch that needs the
    /// window.
    [[nodiscard]] Batch rows(StreamPlan& plan);

    /// Reads a piece of a window that a later plan will need. False when there is nothing to do, or
    /// no room. Called by any threads; throws nothing of the source's.
    bool read_ahead();

    /// What windows and cursors keep in memory.
    [[nodiscard]] std::int64_t bytes() const;

private:
    friend StreamPlan;
    struct Window;
    struct Lane {
        // Of all threads.
        std::list<std::shared_ptr<Window>> windows; ///< planned, or ahead; not yet dropped
        std::deque<std::shared_ptr<Window>> unread; ///< some of them, in the order of planning
        bool is_busy = false;                       ///< a thread has what follows
        std::int64_t cursor_bytes = 0;              ///< when no thread had the lane
        std::int64_t part_bytes = 0;                ///< the same
        // Of the thread that reads.
        std::unique_ptr<Dataset::BlockSource::Cursor> cursor;
        std::int64_t block = 0;                 ///< which the cursor is in
        std::int64_t row = 0;                   ///< of that block, the cursor's next
        std::vector<StreamOrder::Piece> pieces; ///< of the first unread window
        std::size_t next_piece = 0;
        std::vector<Batch> parts; ///< what they were
    };
    using Lock = std::unique_lock<std::mutex>;

    [[nodiscard]] std::shared_ptr<Window> new_window(std::int64_t lane, std::int64_t number);
    [[nodiscard]] Lane* lane_to_read_ahead(); ///< of those that nobody reads; null if there is none
    [[nodiscard]] bool has_room_for(std::int64_t rows) const;
    [[nodiscard]] bool may_read(const Lane& lane) const;
    void read(std::span<const std::shared_ptr<Window>> windows);
    void read_some(Lane& lane, Lock& lock);
    void take_cursor(Lane& lane, const StreamOrder::Piece& piece);
    void read_piece(Lane& lane, const StreamOrder::Piece& piece);
    [[nodiscard]] std::int64_t bytes_of_cursors() const;
    [[nodiscard]] std::int64_t bytes_of_parts() const;

    std::shared_ptr<const BlockIndex> blocks_;
    StreamOrder order_;
    std::int64_t memory_bytes_;
    std::shared_ptr<WindowMemory> memory_;

    mutable std::mutex mutex_; ///< of what follows
    std::condition_variable is_read_;
    std::map<std::int64_t, Lane> lanes_;         ///< that this rank reads
    std::int64_t stride_ = 1;                    ///< of this rank's places
    std::optional<std::int64_t> largest_cursor_; ///< in bytes, once one has read
};

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/stream_reader_definitions.hpp>
#endif
