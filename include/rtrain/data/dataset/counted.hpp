// SPDX-License-Identifier: Apache-2.0
/// @file
/// The rows of filter() and flat_map() after counting: blocks like any others.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/dataset/block_index.hpp>
#include <rtrain/data/dataset/dataset_handle.hpp>
#include <rtrain/data/dataset/unsized.hpp>
#include <rtrain/data/dataset/views.hpp>

#include <ATen/Functions.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

/// The results of functions on the blocks of a data set, block by block. Copies share it.
class TransformedBlocks {
public:
    /// For any data set: the results of its functions, or its rows as they are. Throws DataError
    /// [RT-D72] for a generator.
    explicit TransformedBlocks(const Dataset& dataset)
        : TransformedBlocks(dataset.uncounted() ? dataset.uncounted()
                                                : std::make_shared<const UnsizedDataset>(dataset)) {
    }
    /// Throws DataError [RT-D72] for a generator.
    explicit TransformedBlocks(std::shared_ptr<const UnsizedDataset> rows)
        : rows_(std::move(rows)), index_(index_of(*rows_)) {}

    [[nodiscard]] const BlockIndex& index() const noexcept { return *index_; }

    /// Iterates over all rows made from a block.
    class Cursor : public Dataset::BlockSource::Cursor {
    public:
        Cursor(const TransformedBlocks& blocks, std::int64_t block)
            : rows_(blocks.rows_), index_(blocks.index_), inner_(index_->source().open(block, 0)) {}

        [[nodiscard]] Batch next(std::int64_t rows) override {
            while (row_ == made_.size()) {
                made_ = Batch();
                row_ = 0;
                Batch batch = inner_->next(UnsizedDataset::chunk_rows(index_.get()));
                if (batch.size() == 0) {
                    return {};
                }
                made_ = rows_->make(std::move(batch)).batch;
            }
            const std::int64_t begin = row_;
            row_ += std::min(rows, made_.size() - begin);
            if (row_ - begin == made_.size()) {
                row_ = 0;
                return std::exchange(made_, {});
            }
            return select_rows(made_, at::arange(begin, row_, at::kLong));
        }
        [[nodiscard]] std::int64_t bytes() const override {
            return inner_->bytes() + bytes_of(made_);
        }
        /// Skips rows.
        void skip(std::int64_t rows) {
            while (rows > 0) {
                const std::int64_t passed = next(rows).size();
                rows = passed == 0 ? 0 : rows - passed;
            }
        }

    private:
        std::shared_ptr<const UnsizedDataset> rows_;
        std::shared_ptr<const BlockIndex> index_;
        std::unique_ptr<Dataset::BlockSource::Cursor> inner_;
        Batch made_;
        std::int64_t row_ = 0; ///< the next one of made_
    };

    /// Reads a block to count the rows made from it. Blocks are independent, so ranks may share
    /// them.
    [[nodiscard]] Dataset::BlockSource::Block count(std::int64_t block) const {
        constexpr std::int64_t all = std::int64_t{1} << 62;
        Dataset::BlockSource::Block counted{.content = index_->content()};
        Cursor cursor(*this, block);
        for (Batch batch; (batch = cursor.next(all)).size() > 0;) {
            counted.rows += batch.size();
            counted.bytes += bytes_of(batch);
        }
        return counted;
    }

    [[nodiscard]] Batch read(std::int64_t block) const {
        return rows_->make(index_->source().read(block)).batch;
    }

private:
    [[nodiscard]] static std::shared_ptr<const BlockIndex> index_of(const UnsizedDataset& rows) {
        if (!rows.input()) {
            throw DataError("RT-D72",
                            "the rows of a generator cannot be counted, because they differ in "
                            "each epoch; read the data set with data::Streaming");
        }
        if (auto blocks = rows.input()->blocks()) {
            return blocks;
        }
        constexpr std::int64_t rows_of_block = 4096;
        return std::make_shared<const BlockIndex>(std::make_shared<EvenBlocks>(
            *rows.input(), (rows.input()->size() + rows_of_block - 1) / rows_of_block, 0));
    }

    std::shared_ptr<const UnsizedDataset> rows_;
    std::shared_ptr<const BlockIndex> index_; ///< of the input
};

/// Blocks with a known number of rows.
class CountedBlocks : public Dataset::BlockSource {
public:
    /// `counted` has the result of TransformedBlocks::count() for each block.
    CountedBlocks(TransformedBlocks made, std::vector<Block> counted)
        : made_(std::move(made)), counted_(std::move(counted)) {}
    explicit CountedBlocks(TransformedBlocks made) : made_(std::move(made)) {
        for (std::int64_t block = 0; block < made_.index().size(); ++block) {
            counted_.push_back(made_.count(block));
        }
    }

    [[nodiscard]] std::vector<Block> blocks() const override { return counted_; }
    [[nodiscard]] Batch read(std::int64_t block) const override { return made_.read(block); }
    [[nodiscard]] std::unique_ptr<Cursor> open(std::int64_t block,
                                               std::int64_t first_row) const override {
        auto cursor = std::make_unique<TransformedBlocks::Cursor>(made_, block);
        cursor->skip(first_row);
        return cursor;
    }
    [[nodiscard]] std::string name_of(std::int64_t block) const override {
        return made_.index().source().name_of(block);
    }

    /// Functions may draw random numbers.
    [[nodiscard]] bool is_fixed() const override { return false; }

private:
    TransformedBlocks made_;
    std::vector<Block> counted_;
};

} // namespace rtrain::data
