// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sources that are read in blocks, served by row number as any other data set.
#pragma once

#include <rtrain/data/batch.hpp>
#include <rtrain/data/block_index.hpp>
#include <rtrain/data/dataset_handle.hpp>
#include <rtrain/data/gather.hpp>
#include <rtrain/data/rows.hpp>
#include <rtrain/process/reading.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace rtrain::data {

/// The rows of blocks by number. Each batch reads the blocks that its rows lie in, once each, and
/// the one read last is kept: in order, every block is read once.
class BlockRows : public Dataset::Source {
public:
    /// Throws DataError [RT-D18].
    explicit BlockRows(std::shared_ptr<const Dataset::BlockSource> blocks)
        : index_(std::make_shared<const BlockIndex>(std::move(blocks))) {}

    [[nodiscard]] std::int64_t size() const override { return index_->rows(); }
    [[nodiscard]] std::shared_ptr<const BlockIndex> blocks() const override { return index_; }

    [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
        const auto locate = [this](std::int64_t row) -> PartRow {
            const std::int64_t block = index_->block_of(row);
            return {block, row - index_->begin_of(block)};
        };
        return gather_rows(indices, locate, [this](std::int64_t block, const at::Tensor& rows) {
            return select_rows(*read(block), rows);
        });
    }

private:
    [[nodiscard]] std::shared_ptr<const Batch> read(std::int64_t block) const {
        {
            const std::scoped_lock lock(mutex_);
            if (kept_ && kept_block_ == block) {
                return kept_;
            }
        }
        const Reading reading(index_->source().name_of(block));
        auto batch = std::make_shared<const Batch>(index_->source().read(block));
        if (batch->size() != index_->rows_of(block)) {
            throw index_->miscounted(block, std::to_string(batch->size()));
        }
        const std::scoped_lock lock(mutex_);
        kept_block_ = block;
        return kept_ = std::move(batch);
    }

    std::shared_ptr<const BlockIndex> index_;
    mutable std::mutex mutex_;
    mutable std::int64_t kept_block_ = 0;
    mutable std::shared_ptr<const Batch> kept_;
};

/// A data set that is read in blocks. Loops over it, their shuffles and the place in them are the
/// same as with rows; but a shuffled batch has rows of many blocks and reads them all, so let
/// blocks be few, or cheap to read again, or shuffle with data::Streaming, which reads each block
/// once. Throws DataError [RT-D18].
///
/// @code
/// auto logs = rtrain::data::from_blocks(std::make_shared<const LogFiles>("logs"));
/// @endcode
[[nodiscard]] inline Dataset from_blocks(std::shared_ptr<const Dataset::BlockSource> blocks) {
    return Dataset(std::make_shared<BlockRows>(std::move(blocks)));
}

} // namespace rtrain::data

#include <rtrain/data/dataset.hpp> // behind what its definitions need from here
