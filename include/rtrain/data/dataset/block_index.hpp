// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metadata of a data set's blocks, available without reading them.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/dataset/dataset_handle.hpp>
#include <rtrain/data/order/permutation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

class BlockIndex {
public:
    /// Throws DataError [RT-D18].
    explicit BlockIndex(std::shared_ptr<const Dataset::BlockSource> source)
        : source_(std::move(source)) {
        for (const auto& [rows, bytes, content] : source_->blocks()) {
            const std::int64_t block = size();
            if (rows < 0) {
                throw DataError("RT-D18",
                                detail::concat("blocks() returned ", rows, " rows for block ",
                                               block, "; expected at least 0"));
            }
            digest_ = hash_of(digest_, rows, bytes);
            content_ = content == 0 && content_ == 0 ? 0 : hash_of(content_, content);
            ends_.push_back(this->rows() + rows);
            const std::int64_t of_row =
                rows == 0 ? 0 : (bytes > 0 ? (bytes - 1) / rows + 1 : unknown_row_bytes);
            bytes_ += bytes > 0 ? bytes : rows * unknown_row_bytes;
            if (of_row > row_bytes_) {
                row_bytes_ = of_row;
                widest_ = block;
            }
        }
    }

    [[nodiscard]] const Dataset::BlockSource& source() const noexcept { return *source_; }

    /// The number of rows in all blocks.
    [[nodiscard]] std::int64_t rows() const noexcept { return ends_.empty() ? 0 : ends_.back(); }
    /// The number of blocks.
    [[nodiscard]] std::int64_t size() const noexcept {
        return static_cast<std::int64_t>(ends_.size());
    }
    /// The end of each block, in rows from the beginning of the first.
    [[nodiscard]] const std::vector<std::int64_t>& ends() const noexcept { return ends_; }
    [[nodiscard]] std::int64_t begin_of(std::int64_t block) const {
        return block == 0 ? 0 : ends_[static_cast<std::size_t>(block) - 1];
    }
    [[nodiscard]] std::int64_t rows_of(std::int64_t block) const {
        return ends_[static_cast<std::size_t>(block)] - begin_of(block);
    }
    /// The block that has a row, which is in [0, rows()).
    [[nodiscard]] std::int64_t block_of(std::int64_t row) const {
        return std::ranges::upper_bound(ends_, row) - ends_.begin();
    }

    /// Bytes of a row in memory, averaged over the block with the largest rows. A row of a block
    /// that does not state its size counts as 1 KiB.
    [[nodiscard]] std::int64_t row_bytes() const noexcept { return row_bytes_; }
    /// Bytes of all blocks in memory, approximately.
    [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
    /// The block with the largest rows.
    [[nodiscard]] std::int64_t widest() const noexcept { return widest_; }

    /// A fingerprint of the blocks' numbers of rows and bytes.
    [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }

    /// A fingerprint of the rows, as far as blocks() provides it; 0: not known.
    [[nodiscard]] std::uint64_t content() const noexcept { return content_; }

    /// The error for a block that has `found` rows, not the number that blocks() returned.
    [[nodiscard]] DataError miscounted(std::int64_t block, const std::string& found) const {
        return DataError("RT-D18",
                         detail::concat(source_->name_of(block), " has ", found, " rows; expected ",
                                        rows_of(block),
                                        ", as returned by blocks(). Functions before counted() and "
                                        "pack() must return the same number of rows each time"));
    }

private:
    static constexpr std::int64_t unknown_row_bytes = 1024;

    std::shared_ptr<const Dataset::BlockSource> source_;
    std::vector<std::int64_t> ends_;
    std::int64_t row_bytes_ = 1;
    std::int64_t bytes_ = 0;
    std::int64_t widest_ = 0;
    std::uint64_t digest_ = 0;
    std::uint64_t content_ = 0;
};

} // namespace rtrain::data
