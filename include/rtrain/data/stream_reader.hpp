// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads the rows at places of a streamed epoch, each window of a lane once.
#pragma once

#include <rtrain/data/batch.hpp>
#include <rtrain/data/block_index.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/data/steps.hpp>
#include <rtrain/data/stream_order.hpp>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace rtrain::data {

/// The lanes and windows in which ranks stream these blocks. Half of `memory_bytes` holds one
/// window of each lane, so a window has memory_bytes / (2 × lanes) bytes by the index, but no more
/// rows than a lane. With more ranks than `lanes`, lanes are the next multiple. Throws DataError:
/// RT-D20 when that is not enough for a row of some block, RT-D22 when `lanes` is less than 1.
[[nodiscard]] StreamShape stream_shape(const BlockIndex& blocks, std::int64_t lanes,
                                       std::int64_t ranks, std::int64_t memory_bytes);

/// What of `memory_bytes` is taken for what:
///
/// - a half for windows, one of each lane: all of it on one rank, the n-th part on n ranks whose
///   number divides lanes. While it is put together, a window is there twice, as it came and in one
///   piece;
/// - a quarter for cursors that keep memory (Dataset::BlockSource::Cursor::bytes()). A cursor
///   beyond it is closed with its window and opened anew for the next one, so a source without
///   cursors of its own reads such a block again for each window;
/// - the rest is room for the block that is being read, and for the batch.
class StreamReader {
public:
    StreamReader(std::shared_ptr<const BlockIndex> blocks, StreamOrder order,
                 std::int64_t memory_bytes);

    /// The rows at these places, in their order; there is at least one. A window is dropped when a
    /// later one of its lane is needed, but with `kept_from` only if it lies before that place.
    /// Throws DataError [RT-D18], and what the source throws.
    [[nodiscard]] Batch rows(const StridedPlaces& places,
                             std::optional<std::int64_t> kept_from = std::nullopt);

    /// What windows and cursors keep in memory.
    [[nodiscard]] std::int64_t bytes() const;

private:
    struct Window {
        std::int64_t number = 0; ///< in its lane
        StreamOrder::WindowOrder order;
        Batch batch;
    };
    struct Lane {
        std::list<Window> windows; ///< more than one only with `kept_from`
        std::unique_ptr<Dataset::BlockSource::Cursor> cursor;
        std::int64_t block = 0; ///< which the cursor is in
        std::int64_t row = 0;   ///< of that block, the cursor's next
    };

    const Window& window(std::int64_t lane, std::int64_t number,
                         const std::optional<std::int64_t>& kept_from);
    [[nodiscard]] Batch read(Lane& lane, const std::vector<StreamOrder::Piece>& pieces);
    void read_piece(Lane& lane, const StreamOrder::Piece& piece, std::vector<Batch>& parts);
    [[nodiscard]] std::int64_t bytes_of_cursors() const;

    std::shared_ptr<const BlockIndex> blocks_;
    StreamOrder order_;
    std::int64_t memory_bytes_;
    std::map<std::int64_t, Lane> lanes_; ///< that this rank reads
};

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/stream_reader_definitions.hpp>
#endif
