// SPDX-License-Identifier: Apache-2.0
/// @file
/// Map-style data sets: rows that can be read by number, behind one type whatever they come from.
#pragma once

#include <rtrain/data/batch.hpp>
#include <rtrain/data/rows.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

class BlockIndex;

/// A handle to a data set; copies share it. Made by from_tensors(), fashion_mnist(), idx(),
/// from_dataset(), from_blocks() or lazy().
class Dataset {
public:
    /// What a source of rows offers.
    class Source {
    public:
        Source() = default;
        Source(const Source&) = delete;
        Source& operator=(const Source&) = delete;
        virtual ~Source() = default;
        [[nodiscard]] virtual std::int64_t size() const = 0;
        /// The rows with these numbers (int64, one dimension, each in [0, size())), in this order.
        /// It may have nothing for some of them: the batch is then smaller, or empty.
        [[nodiscard]] virtual Batch rows(const at::Tensor& indices) const = 0;
        /// What is known of its blocks, where it is read in blocks: see from_blocks().
        [[nodiscard]] virtual std::shared_ptr<const BlockIndex> blocks() const { return nullptr; }
    };

    /// What a source offers that is read many rows at a time, such as a file. Rows are numbered
    /// from block to block. See from_blocks().
    class BlockSource {
    public:
        /// What is known of a block without reading it, and always the same.
        struct Block {
            std::int64_t rows = 0;
            std::int64_t bytes = 0; ///< of its batch in memory, about; 0: not known
        };

        BlockSource() = default;
        BlockSource(const BlockSource&) = delete;
        BlockSource& operator=(const BlockSource&) = delete;
        virtual ~BlockSource() = default;
        [[nodiscard]] virtual std::vector<Block> blocks() const = 0;
        /// All rows of a block (from 0), in order. Called by several threads at a time.
        [[nodiscard]] virtual Batch read(std::int64_t block) const = 0;

        /// Goes through the rows of a block. Used by one thread at a time.
        class Cursor {
        public:
            Cursor() = default;
            Cursor(const Cursor&) = delete;
            Cursor& operator=(const Cursor&) = delete;
            virtual ~Cursor() = default;
            /// At least one and at most `rows` (at least 1) of the next rows; none at the block's
            /// end. The batch keeps no memory alive but its own.
            [[nodiscard]] virtual Batch next(std::int64_t rows) = 0;
            /// What it keeps in memory between calls, about.
            [[nodiscard]] virtual std::int64_t bytes() const { return 0; }
        };
        /// A cursor at row `first_row` (from 0) of a block. Large blocks are read through it: a
        /// source that can read part of a block gives one of its own; this one reads the block
        /// whole and keeps it. Called by several threads at a time.
        [[nodiscard]] virtual std::unique_ptr<Cursor> open(std::int64_t block,
                                                           std::int64_t first_row) const;
        /// What messages call a block: its file, and its place there.
        [[nodiscard]] virtual std::string name_of(std::int64_t block) const {
            return "block " + std::to_string(block);
        }
    };

    explicit Dataset(std::shared_ptr<const Source> source) : source_(std::move(source)) {}

    [[nodiscard]] std::int64_t size() const { return source_->size(); }
    [[nodiscard]] Batch rows(const at::Tensor& indices) const { return source_->rows(indices); }
    /// Null when it is not read in blocks.
    [[nodiscard]] std::shared_ptr<const BlockIndex> blocks() const { return source_->blocks(); }

private:
    std::shared_ptr<const Source> source_;
};

inline std::unique_ptr<Dataset::BlockSource::Cursor>
Dataset::BlockSource::open(std::int64_t block, std::int64_t first_row) const {
    class OfWhole : public Cursor {
    public:
        OfWhole(Batch batch, std::int64_t row) : batch_(std::move(batch)), row_(row) {}
        [[nodiscard]] Batch next(std::int64_t rows) override {
            const std::int64_t begin = std::min(row_, batch_.size());
            row_ = begin + std::min(rows, batch_.size() - begin);
            if (row_ - begin == batch_.size()) {
                return std::exchange(batch_, {});
            }
            return select_rows(batch_, at::arange(begin, row_, at::kLong));
        }
        [[nodiscard]] std::int64_t bytes() const override { return bytes_of(batch_); }

    private:
        Batch batch_; ///< empty once it was handed out whole
        std::int64_t row_;
    };
    return std::make_unique<OfWhole>(read(block), first_row);
}

/// Data sets by the name that `worker.dataset_shard(name)` asks for.
using Datasets = std::map<std::string, Dataset>;

/// Rows held in memory, one tensor a column; the first dimension counts rows. Throws DataError
/// [RT-D6] when columns have different numbers of rows.
///
/// @code
/// auto points = rtrain::data::from_tensors({{"x", x}, {"y", y}});
/// @endcode
[[nodiscard]] inline Dataset from_tensors(Batch::Columns columns) {
    class InMemory : public Dataset::Source {
    public:
        explicit InMemory(Batch::Columns columns) : columns_(std::move(columns)) {}
        [[nodiscard]] std::int64_t size() const override { return columns_.front().second.size(0); }
        [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
            Batch::Columns selected;
            for (const auto& [name, column] : columns_) {
                selected.emplace_back(name, column.index_select(0, indices));
            }
            return Batch(std::move(selected));
        }

    private:
        Batch::Columns columns_;
    };
    if (columns.empty()) {
        throw DataError("RT-D6", "from_tensors() needs at least one column");
    }
    for (const auto& [name, column] : columns) {
        if (!column.defined() || column.dim() == 0 ||
            column.size(0) != columns.front().second.size(0)) {
            throw DataError(
                "RT-D6", detail::concat("column \"", name, "\" has ",
                                        column.defined() && column.dim() > 0 ? column.size(0) : 0,
                                        " rows, but \"", columns.front().first,
                                        "\" has another number; the first dimension counts rows"));
        }
    }
    return Dataset(std::make_shared<InMemory>(std::move(columns)));
}

/// A data set that `open` makes when it is first read: on the ranks that train, not in the process
/// that only launches them.
[[nodiscard]] inline Dataset lazy(std::function<Dataset()> open) {
    class Lazy : public Dataset::Source {
    public:
        explicit Lazy(std::function<Dataset()> open) : open_(std::move(open)) {}
        [[nodiscard]] std::int64_t size() const override { return opened().size(); }
        [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
            return opened().rows(indices);
        }
        [[nodiscard]] std::shared_ptr<const BlockIndex> blocks() const override {
            return opened().blocks();
        }

    private:
        const Dataset& opened() const {
            std::call_once(once_, [this] { dataset_ = std::make_unique<Dataset>(open_()); });
            return *dataset_;
        }
        std::function<Dataset()> open_;
        mutable std::once_flag once_;
        mutable std::unique_ptr<Dataset> dataset_;
    };
    return Dataset(std::make_shared<Lazy>(std::move(open)));
}

} // namespace rtrain::data
