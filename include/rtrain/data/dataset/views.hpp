// SPDX-License-Identifier: Apache-2.0
/// @file
/// Data sets whose rows are a renumbered selection of another's: a range, or all of them in blocks
/// of a different size.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/dataset/block_index.hpp>
#include <rtrain/data/dataset/dataset_handle.hpp>
#include <rtrain/data/order/permutation.hpp>
#include <rtrain/data/order/steps.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

/// The rows of a range, in their original blocks.
class BlocksOfRange : public Dataset::BlockSource {
public:
    BlocksOfRange(std::shared_ptr<const BlockIndex> inner, RowRange range)
        : inner_(std::move(inner)), range_(range),
          first_(range.begin == range.end ? inner_->size() : inner_->block_of(range.begin)) {}

    [[nodiscard]] std::vector<Block> blocks() const override {
        const std::vector<Block> inner = inner_->source().blocks();
        std::vector<Block> blocks;
        for (std::int64_t block = first_;
             block < inner_->size() && inner_->begin_of(block) < range_.end; ++block) {
            const auto& [rows, bytes, content] = inner[static_cast<std::size_t>(block)];
            const std::int64_t kept = part_of(block).end - part_of(block).begin;
            blocks.push_back(
                {.rows = kept, .bytes = rows == 0 ? 0 : bytes / rows * kept, .content = content});
        }
        return blocks;
    }
    [[nodiscard]] Batch read(std::int64_t block) const override {
        const RowRange part = part_of(first_ + block);
        Batch whole = inner_->source().read(first_ + block);
        return part.begin == 0 && part.end == whole.size()
                   ? whole
                   : slice_rows(whole, part.begin, part.end);
    }
    [[nodiscard]] std::unique_ptr<Cursor> open(std::int64_t block,
                                               std::int64_t first_row) const override {
        class Limited : public Cursor {
        public:
            Limited(std::unique_ptr<Cursor> inner, std::int64_t rows)
                : inner_(std::move(inner)), rows_(rows) {}
            [[nodiscard]] Batch next(std::int64_t rows) override {
                if (rows_ == 0) {
                    return {};
                }
                Batch batch = inner_->next(std::min(rows, rows_));
                rows_ -= batch.size();
                return batch;
            }
            [[nodiscard]] std::int64_t bytes() const override { return inner_->bytes(); }

        private:
            std::unique_ptr<Cursor> inner_;
            std::int64_t rows_;
        };
        const RowRange part = part_of(first_ + block);
        return std::make_unique<Limited>(
            inner_->source().open(first_ + block, part.begin + first_row),
            std::max<std::int64_t>(part.end - part.begin - first_row, 0));
    }
    [[nodiscard]] std::string name_of(std::int64_t block) const override {
        return inner_->source().name_of(first_ + block);
    }
    [[nodiscard]] bool is_fixed() const override { return inner_->source().is_fixed(); }

private:
    /// The part of a block's rows that is in the range.
    [[nodiscard]] RowRange part_of(std::int64_t block) const {
        const std::int64_t begin = inner_->begin_of(block);
        return {std::max(range_.begin - begin, std::int64_t{0}),
                std::min(range_.end - begin, inner_->rows_of(block))};
    }

    std::shared_ptr<const BlockIndex> inner_;
    RowRange range_;
    std::int64_t first_; ///< first block of the range
};

/// Rows [begin, end) of a data set, or of its shuffled order.
class RowsOfRange : public Dataset::Source {
public:
    RowsOfRange(Dataset inner, RowRange range, std::optional<std::uint64_t> key = std::nullopt)
        : inner_(std::move(inner)), range_(range) {
        if (key) {
            order_.emplace(std::max<std::int64_t>(inner_.size(), 1), *key);
        } else if (auto blocks = inner_.blocks()) {
            blocks_ = std::make_shared<const BlockIndex>(
                std::make_shared<BlocksOfRange>(std::move(blocks), range));
        }
    }

    [[nodiscard]] std::int64_t size() const override { return range_.end - range_.begin; }
    [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
        at::Tensor rows = indices.add(range_.begin);
        if (order_) {
            auto* const row = rows.mutable_data_ptr<std::int64_t>();
            std::for_each_n(row, rows.numel(), [this](auto& place) { place = (*order_)[place]; });
        }
        return inner_.rows(rows);
    }
    [[nodiscard]] std::shared_ptr<const BlockIndex> blocks() const override { return blocks_; }
    [[nodiscard]] std::uint64_t content() const override { return inner_.content(); }

private:
    Dataset inner_;
    RowRange range_;
    std::optional<Permutation> order_;
    std::shared_ptr<const BlockIndex> blocks_;
};

/// The rows of any data set in blocks of equal size, except for one.
class EvenBlocks : public Dataset::BlockSource {
public:
    EvenBlocks(Dataset inner, std::int64_t blocks, std::int64_t row_bytes)
        : inner_(std::move(inner)), blocks_(blocks), row_bytes_(row_bytes) {}

    [[nodiscard]] std::vector<Block> blocks() const override {
        std::vector<Block> blocks;
        const std::uint64_t content = inner_.content();
        for (std::int64_t block = 0; block < blocks_; ++block) {
            const RowRange part = even_part(inner_.size(), blocks_, block);
            const std::int64_t rows = part.end - part.begin;
            blocks.push_back({.rows = rows, .bytes = rows * row_bytes_, .content = content});
        }
        return blocks;
    }
    [[nodiscard]] Batch read(std::int64_t block) const override {
        const RowRange part = even_part(inner_.size(), blocks_, block);
        return inner_.rows(at::arange(part.begin, part.end, at::kLong));
    }
    [[nodiscard]] bool is_fixed() const override {
        const auto blocks = inner_.blocks();
        return !blocks || blocks->source().is_fixed();
    }

private:
    Dataset inner_;
    std::int64_t blocks_;
    std::int64_t row_bytes_;
};

/// A data set with new blocks, whatever blocks it had.
class Repartitioned : public Dataset::Source {
public:
    /// `row_bytes`: approximate bytes of a row in memory; 0: not known.
    Repartitioned(const Dataset& inner, std::int64_t blocks, std::int64_t row_bytes)
        : inner_(inner), blocks_(std::make_shared<const BlockIndex>(
                             std::make_shared<EvenBlocks>(inner, blocks, row_bytes))) {}

    [[nodiscard]] std::int64_t size() const override { return inner_.size(); }
    [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
        return inner_.rows(indices);
    }
    [[nodiscard]] std::shared_ptr<const BlockIndex> blocks() const override { return blocks_; }

private:
    Dataset inner_;
    std::shared_ptr<const BlockIndex> blocks_;
};

} // namespace rtrain::data
