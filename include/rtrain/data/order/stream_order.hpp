// SPDX-License-Identifier: Apache-2.0
/// @file
/// The order in which all ranks together stream an epoch over blocks: arithmetic on keys, without a
/// table of rows. Cost tier 0: std only.
///
/// The blocks of an epoch are in the order of a keyed Permutation, and their consecutive rows form
/// one sequence. It is cut into lanes, equal parts that are read in parallel. A lane is cut into
/// windows of equally many rows, and each window permutes its rows by its own key. Position p of
/// the epoch is row p / lanes of lane p % lanes. Consecutive positions thus have rows from all over
/// the data set. Yet each lane is read from beginning to end, and only one window of it must be in
/// memory.
#pragma once

#include <rtrain/data/order/permutation.hpp>
#include <rtrain/data/order/steps.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace rtrain::data {

/// The inputs of an order other than the blocks; part of every saved position.
struct StreamShape {
    std::int64_t lanes = 1;  ///< at least 1
    std::int64_t window = 1; ///< rows, at least 1
};

class StreamOrder {
public:
    /// `ends`: the end of each block, in rows from the beginning of the first. Without `shuffle`,
    /// blocks and their rows are in the given order. It takes 16 bytes a block.
    StreamOrder(const std::vector<std::int64_t>& ends, StreamShape shape, bool shuffle,
                std::uint64_t key)
        : shape_(shape), shuffle_(shuffle), key_(key) {
        const auto count = static_cast<std::int64_t>(ends.size());
        const Permutation permutation(std::max<std::int64_t>(count, 1), hash_of(key, of_blocks));
        blocks_.reserve(ends.size());
        ends_.reserve(ends.size());
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t block = shuffle ? permutation[i] : i;
            const auto at = static_cast<std::size_t>(block);
            blocks_.push_back(block);
            ends_.push_back(rows() + ends[at] - (at == 0 ? 0 : ends[at - 1]));
        }
    }

    /// The number of rows in the epoch.
    [[nodiscard]] std::int64_t rows() const noexcept { return ends_.empty() ? 0 : ends_.back(); }
    [[nodiscard]] const StreamShape& shape() const noexcept { return shape_; }

    /// Lanes differ by at most one row; the longer ones are first.
    [[nodiscard]] std::int64_t rows_of(std::int64_t lane) const noexcept {
        return rows_of_lane(rows(), shape_.lanes, lane);
    }
    [[nodiscard]] std::int64_t rows_of(std::int64_t lane, std::int64_t window) const noexcept {
        return std::min(shape_.window, rows_of(lane) - window * shape_.window);
    }

    /// Locates the row of a position in its window, after the window is permuted.
    struct Place {
        std::int64_t lane = 0;
        std::int64_t window = 0; ///< of the lane, from 0
        std::int64_t row = 0;    ///< of the window, permuted by order_of()
    };
    [[nodiscard]] Place find(std::int64_t place) const noexcept {
        const std::int64_t row = place / shape_.lanes;
        return {place % shape_.lanes, row / shape_.window, row % shape_.window};
    }

    /// The rows of a window in the order in which they are taken, as their indices in reading
    /// order.
    class WindowOrder {
    public:
        WindowOrder(std::int64_t rows, std::uint64_t key, bool shuffle) noexcept
            : permutation_(rows, key), shuffle_(shuffle) {}
        [[nodiscard]] std::int64_t operator[](std::int64_t row) const noexcept {
            return shuffle_ ? permutation_[row] : row;
        }
        /// Fills in those from `begin` on, several at a time.
        void fill(std::int64_t begin, std::span<std::int64_t> rows) const noexcept {
            if (shuffle_) {
                permutation_.fill(begin, rows);
            } else {
                std::iota(rows.begin(), rows.end(), begin);
            }
        }

    private:
        Permutation permutation_;
        bool shuffle_;
    };
    [[nodiscard]] WindowOrder order_of(std::int64_t lane, std::int64_t window) const noexcept {
        return {rows_of(lane, window), hash_of(key_, of_rows, lane, window), shuffle_};
    }

    /// Consecutive rows of a block.
    struct Piece {
        std::int64_t block = 0;
        std::int64_t first_row = 0; ///< in the block
        std::int64_t rows = 0;      ///< at least 1
    };
    /// The pieces from which a window is read, in this order.
    [[nodiscard]] std::vector<Piece> pieces_of(std::int64_t lane, std::int64_t window) const {
        std::int64_t row = begin_of(lane) + window * shape_.window; // of the sequence
        const std::int64_t end = row + rows_of(lane, window);
        std::vector<Piece> pieces;
        for (std::size_t i = position_of(row); row < end; ++i) {
            const std::int64_t begin = i == 0 ? 0 : ends_[i - 1];
            const std::int64_t rows = std::min(end, ends_[i]) - row;
            if (rows > 0) { // skips empty blocks
                pieces.push_back({blocks_[i], row - begin, rows});
            }
            row += rows;
        }
        return pieces;
    }

private:
    enum CollectiveLabel : std::uint8_t { of_blocks, of_rows };

    /// The beginning of a lane in the sequence of all rows.
    [[nodiscard]] std::int64_t begin_of(std::int64_t lane) const noexcept {
        return rows() / shape_.lanes * lane + std::min(lane, rows() % shape_.lanes);
    }
    /// The index of the block with a row of the sequence.
    [[nodiscard]] std::size_t position_of(std::int64_t row) const {
        return static_cast<std::size_t>(std::ranges::upper_bound(ends_, row) - ends_.begin());
    }

    StreamShape shape_;
    bool shuffle_;
    std::uint64_t key_;
    std::vector<std::int64_t> blocks_; ///< in the epoch's order
    std::vector<std::int64_t> ends_;   ///< the ends of these, in rows of the sequence
};

} // namespace rtrain::data
