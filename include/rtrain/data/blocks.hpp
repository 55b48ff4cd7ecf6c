// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sources that are read in blocks, served by row number as any other data set.
#pragma once

#include <rtrain/data/batch.hpp>
#include <rtrain/data/block_index.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/data/rows.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

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
        std::vector<Batch> parts;
        at::Tensor places = at::empty({indices.numel()}, at::kLong); // of the batch in the parts
        auto* const place_of = places.mutable_data_ptr<std::int64_t>();
        std::int64_t place = 0;
        for (const auto& [block, wanted] : by_block(indices)) {
            parts.push_back(select_rows(*read(block), at::tensor(wanted.rows, at::kLong)));
            for (const std::int64_t of_batch : wanted.places) {
                place_of[of_batch] = place++;
            }
        }
        return parts.empty()       ? Batch()
               : parts.size() == 1 ? std::move(parts.front())
                                   : select_rows(concatenate(parts), places);
    }

private:
    struct Wanted {
        std::vector<std::int64_t> rows;   ///< in the block
        std::vector<std::int64_t> places; ///< in the batch
    };

    [[nodiscard]] std::map<std::int64_t, Wanted> by_block(const at::Tensor& indices) const {
        std::map<std::int64_t, Wanted> wanted;
        const at::Tensor numbers = indices.contiguous();
        const auto* const number = numbers.const_data_ptr<std::int64_t>();
        for (std::int64_t place = 0; place < numbers.numel(); ++place) {
            const std::int64_t block = index_->block_of(number[place]);
            Wanted& of_block = wanted[block];
            of_block.rows.push_back(number[place] - index_->begin_of(block));
            of_block.places.push_back(place);
        }
        return wanted;
    }

    [[nodiscard]] std::shared_ptr<const Batch> read(std::int64_t block) const {
        {
            const std::scoped_lock lock(mutex_);
            if (kept_ && kept_block_ == block) {
                return kept_;
            }
        }
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
