// SPDX-License-Identifier: Apache-2.0
/// @file
/// Serves sources that are read in blocks by row number, like any other data set.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/gather.hpp>
#include <rtrain/data/batch/pick_rows.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/dataset/block_index.hpp>
#include <rtrain/data/dataset/dataset_handle.hpp>
#include <rtrain/data/order/random.hpp>
#include <rtrain/process/context.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::data {

/// The rows of blocks by number. Each batch reads the blocks of its rows, once each, and keeps the
/// last one: in order, every block is read once. A shuffled loop keeps all blocks if they fit into
/// BatchOptions::memory_bytes.
class BlockRows : public Dataset::Source {
public:
    /// Throws DataError [RT-D18].
    explicit BlockRows(std::shared_ptr<const Dataset::BlockSource> blocks)
        : index_(std::make_shared<const BlockIndex>(std::move(blocks))) {}

    [[nodiscard]] std::int64_t size() const override { return index_->rows(); }
    [[nodiscard]] std::shared_ptr<const BlockIndex> blocks() const override { return index_; }

    [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
        if (keeps_all(indices)) {
            return kept_rows(indices);
        }
        const auto locate = [this](std::int64_t row) -> PartRow {
            const std::int64_t block = index_->block_of(row);
            return {block, row - index_->begin_of(block)};
        };
        return gather_rows(indices, locate, [this](std::int64_t block, const at::Tensor& rows) {
            return select_rows(*read(block), rows);
        });
    }

private:
    struct Kept {
        std::once_flag once;
        Batch batch;
        std::optional<PickSource> rows;
    };

    [[nodiscard]] bool keeps_all(const at::Tensor& indices) const {
        const ReadingFor::Pass& pass = ReadingFor::pass();
        if (index_->bytes() > pass.memory_bytes || indices.numel() == 0 ||
            !index_->source().is_fixed()) {
            return false;
        }
        const at::Tensor numbers = indices.contiguous();
        const auto* const number = numbers.const_data_ptr<std::int64_t>();
        return pass.shuffles || !std::is_sorted(number, number + numbers.numel());
    }

    [[nodiscard]] Batch kept_rows(const at::Tensor& indices) const {
        std::call_once(keeps_, [this] {
            all_ = std::make_unique<Kept[]>(static_cast<std::size_t>(index_->size()));
        });
        const at::Tensor numbers = indices.contiguous();
        const auto* const number = numbers.const_data_ptr<std::int64_t>();
        std::vector<const PickSource*> parts;
        std::unordered_map<std::int64_t, std::uint32_t> part_of;
        std::vector<ScatteredRows::Row> rows;
        for (std::int64_t i = 0; i < numbers.numel(); ++i) {
            const std::int64_t block = index_->block_of(number[i]);
            const auto [part, is_new] =
                part_of.try_emplace(block, static_cast<std::uint32_t>(parts.size()));
            if (is_new) {
                parts.push_back(&kept(block));
            }
            rows.push_back(
                {part->second, static_cast<std::uint32_t>(number[i] - index_->begin_of(block))});
        }
        return pick_rows(parts, ScatteredRows(rows));
    }

    [[nodiscard]] const PickSource& kept(std::int64_t block) const {
        Kept& kept = all_[static_cast<std::size_t>(block)];
        std::call_once(kept.once, [&] {
            kept.batch = read_now(block);
            kept.batch.each_column([](at::Tensor& tensor) { tensor = tensor.contiguous(); });
            kept.rows.emplace(kept.batch);
        });
        return *kept.rows;
    }

    [[nodiscard]] Batch read_now(std::int64_t block) const {
        const Reading reading(ProcessContext::current().readings, index_->source().name_of(block));
        Batch batch = index_->source().read(block);
        if (batch.size() != index_->rows_of(block)) {
            throw index_->miscounted(block, std::to_string(batch.size()));
        }
        return batch;
    }

    [[nodiscard]] std::shared_ptr<const Batch> read(std::int64_t block) const {
        {
            const std::scoped_lock lock(mutex_);
            if (kept_ && kept_block_ == block) {
                return kept_;
            }
        }
        auto batch = std::make_shared<const Batch>(read_now(block));
        const std::scoped_lock lock(mutex_);
        kept_block_ = block;
        return kept_ = std::move(batch);
    }

    std::shared_ptr<const BlockIndex> index_;
    mutable std::mutex mutex_;
    mutable std::int64_t kept_block_ = 0;
    mutable std::shared_ptr<const Batch> kept_;
    mutable std::once_flag keeps_;
    mutable std::unique_ptr<Kept[]> all_; ///< blocks; allocated for shuffled loops
};

/// A data set that is read in blocks. Loops over it, their shuffles and positions are the same as
/// with rows. A shuffled loop keeps the blocks in memory, or is ordered as by data::Streaming if
/// they exceed BatchOptions::memory_bytes; data::Permuted then reads the blocks of each batch
/// again. Throws DataError [RT-D18].
///
/// @code
/// auto logs = rtrain::data::from_blocks(std::make_shared<const LogFiles>("logs"));
/// @endcode
[[nodiscard]] inline Dataset from_blocks(std::shared_ptr<const Dataset::BlockSource> blocks) {
    return Dataset(std::make_shared<BlockRows>(std::move(blocks)));
}

} // namespace rtrain::data

#include <rtrain/data/dataset/dataset.hpp> // after what its definitions need from here
