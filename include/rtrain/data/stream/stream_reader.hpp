// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads rows by their position in a streamed epoch, each window of a lane once, with any number of
/// threads.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/block_index.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/order/steps.hpp>
#include <rtrain/data/order/stream_order.hpp>

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
/// window of each lane. So a window has memory_bytes / (2 × lanes) bytes by the index, but no more
/// rows than a lane. With more ranks than `lanes`, the next multiple of `lanes` is used. Throws
/// DataError: RT-D20 if that is not enough for a row of some block, RT-D22 if `lanes` is less than
/// 1.
[[nodiscard]] StreamShape stream_shape(const BlockIndex& blocks, std::int64_t lanes,
                                       std::int64_t ranks, std::int64_t memory_bytes);

/// The number of lanes in which `ranks` read: `lanes`, or the next multiple that suffices. Throws
/// DataError [RT-D22] if `lanes` is less than 1.
[[nodiscard]] std::int64_t used_lanes(std::int64_t lanes, std::int64_t ranks);

class WindowMemory; // window_memory.hpp

/// The rows a batch takes from each window. It keeps these windows in memory.
struct StreamPlan;

/// Reads windows within a budget of `memory_bytes`:
///
/// - a half for windows, one of each lane: all of it on one rank, 1/n of it on n ranks if n divides
///   lanes. A window is in memory twice while it is assembled, in parts and in one piece;
/// - a quarter for cursors that keep memory (Dataset::BlockSource::Cursor::bytes()). A cursor over
///   that budget is closed with its window and reopened for the next one. A source with default
///   cursors then reads such a block again for each window. If several threads would hold more than
///   3/8 in cursors, they read one after the other;
/// - the rest, except for an eighth of the budget, for windows that are read ahead, at most one of
///   each lane;
/// - that eighth for the blocks that are being read, one per thread, and for batches.
///
/// As many threads as call rows() or read_ahead() read lanes in parallel. Each lane is read by one
/// thread at a time, from beginning to end.
class StreamReader {
public:
    /// `memory`: what previous readers have left for it; null: nothing.
    StreamReader(std::shared_ptr<const BlockIndex> blocks, StreamOrder order,
                 std::int64_t memory_bytes, std::shared_ptr<WindowMemory> memory = nullptr);
    StreamReader(const StreamReader&) = delete;
    StreamReader& operator=(const StreamReader&) = delete;
    ~StreamReader();

    /// Plans what rows() reads: the rows at these positions, in their order. Make plans in order of
    /// position. A window is dropped when a later one of its lane is needed; with `kept_from`, only
    /// if it is before that position.
    [[nodiscard]] std::shared_ptr<StreamPlan>
    plan(const StridedPlaces& places, std::optional<std::int64_t> kept_from = std::nullopt);

    /// Reads the rows of a plan, once per plan; any thread may call it. Throws DataError [RT-D18,
    /// RT-D19], and exceptions of the source; an exception from reading a window is thrown for each
    /// batch that needs the window.
    [[nodiscard]] Batch rows(StreamPlan& plan);

    /// Reads a piece of a window that a later plan needs. False if there is nothing to do, or no
    /// memory for it. Any thread may call it; does not throw exceptions of the source.
    bool read_ahead();

    /// Bytes held in memory by windows and cursors.
    [[nodiscard]] std::int64_t bytes() const;

private:
    friend StreamPlan;
    struct Window;
    struct Lane {
        // Shared by all threads.
        std::list<std::shared_ptr<Window>> windows; ///< planned, or read ahead; not yet dropped
        std::deque<std::shared_ptr<Window>> unread; ///< some of them, in planning order
        bool is_busy = false;                       ///< a thread owns the fields below
        std::int64_t cursor_bytes = 0;              ///< when no thread owned the lane
        std::int64_t part_bytes = 0;                ///< likewise
        // Owned by the thread that reads.
        std::unique_ptr<Dataset::BlockSource::Cursor> cursor;
        std::int64_t block = 0;                 ///< of the cursor
        std::int64_t row = 0;                   ///< the cursor's next one in that block
        std::vector<StreamOrder::Piece> pieces; ///< of the first unread window
        std::size_t next_piece = 0;
        std::vector<Batch> parts; ///< the pieces read so far
    };
    using Lock = std::unique_lock<std::mutex>;

    [[nodiscard]] std::shared_ptr<Window> new_window(std::int64_t lane, std::int64_t number);
    [[nodiscard]] Lane* lane_to_read_ahead(); ///< an unowned one; null if there is none
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

    mutable std::mutex mutex_; ///< guards the fields below
    std::condition_variable is_read_;
    std::map<std::int64_t, Lane> lanes_;         ///< those this rank reads
    std::int64_t stride_ = 1;                    ///< of this rank's positions
    std::optional<std::int64_t> largest_cursor_; ///< in bytes; empty before the first read
};

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/stream/stream_reader_definitions.hpp>
#endif
