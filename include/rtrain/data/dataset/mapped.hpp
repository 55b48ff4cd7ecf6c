// SPDX-License-Identifier: Apache-2.0
/// @file
/// A data set whose batches are transformed by a function when read.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/block_index.hpp>
#include <rtrain/data/dataset/dataset_handle.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Also receives the number of the batch's first row in the data set.
using BatchFunction = std::function<Batch(Batch, std::int64_t)>;

/// Throws DataError [RT-D65] if it returns a different number of rows.
[[nodiscard]] inline Batch map_rows(const BatchFunction& function, Batch batch,
                                    std::int64_t first_row) {
    const std::int64_t rows = batch.size();
    Batch mapped = function(std::move(batch), first_row);
    if (mapped.size() != rows) {
        throw DataError("RT-D65",
                        detail::concat("the function of map_batches() made ", mapped.size(),
                                       " rows of ", rows, "; expected the same number"));
    }
    return mapped;
}

class MappedBlocks : public Dataset::BlockSource {
public:
    MappedBlocks(std::shared_ptr<const BlockIndex> inner, BatchFunction function)
        : inner_(std::move(inner)), function_(std::move(function)) {}

    [[nodiscard]] std::vector<Block> blocks() const override { return inner_->source().blocks(); }
    [[nodiscard]] Batch read(std::int64_t block) const override {
        return map_rows(function_, inner_->source().read(block), inner_->begin_of(block));
    }
    [[nodiscard]] std::unique_ptr<Cursor> open(std::int64_t block,
                                               std::int64_t first_row) const override {
        class Mapped : public Cursor {
        public:
            Mapped(std::unique_ptr<Cursor> inner, BatchFunction function, std::int64_t first_row)
                : inner_(std::move(inner)), function_(std::move(function)), row_(first_row) {}
            [[nodiscard]] Batch next(std::int64_t rows) override {
                Batch batch = inner_->next(rows);
                const std::int64_t first = row_;
                row_ += batch.size();
                return batch.size() == 0 ? batch : map_rows(function_, std::move(batch), first);
            }
            [[nodiscard]] std::int64_t bytes() const override { return inner_->bytes(); }

        private:
            std::unique_ptr<Cursor> inner_;
            BatchFunction function_;
            std::int64_t row_; ///< the next one of the data set
        };
        return std::make_unique<Mapped>(inner_->source().open(block, first_row), function_,
                                        inner_->begin_of(block) + first_row);
    }
    [[nodiscard]] std::string name_of(std::int64_t block) const override {
        return inner_->source().name_of(block);
    }
    /// True if the function's input is fixed.
    [[nodiscard]] bool is_fixed() const override { return inner_->source().is_fixed(); }

private:
    std::shared_ptr<const BlockIndex> inner_;
    BatchFunction function_;
};

class MappedRows : public Dataset::Source {
public:
    MappedRows(Dataset inner, BatchFunction function)
        : inner_(std::move(inner)), function_(std::move(function)) {
        if (auto blocks = inner_.blocks()) {
            blocks_ = std::make_shared<const BlockIndex>(
                std::make_shared<MappedBlocks>(std::move(blocks), function_));
        }
    }

    [[nodiscard]] std::int64_t size() const override { return inner_.size(); }
    [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
        const std::int64_t first = indices.numel() == 0 ? 0 : indices[0].item<std::int64_t>();
        return map_rows(function_, inner_.rows(indices), first);
    }
    [[nodiscard]] std::shared_ptr<const BlockIndex> blocks() const override { return blocks_; }
    [[nodiscard]] std::uint64_t content() const override { return inner_.content(); }

private:
    Dataset inner_;
    BatchFunction function_;
    std::shared_ptr<const BlockIndex> blocks_;
};

} // namespace rtrain::data
