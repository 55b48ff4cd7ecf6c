// SPDX-License-Identifier: Apache-2.0
/// @file
/// Data sets made of several: concatenated, zipped, or mixed by weights.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/gather.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/dataset/block_index.hpp>
#include <rtrain/data/dataset/dataset_handle.hpp>
#include <rtrain/data/dataset/views.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Checks that the rows of data sets fit in one batch.
class LikeRows {
public:
    explicit LikeRows(std::vector<Dataset> parts) : parts_(std::move(parts)) {}

    /// Reads one row of each, once. Throws DataError [RT-D19] if their rows cannot be in the same
    /// batch.
    void require() const {
        std::call_once(once_, [this] {
            std::vector<Batch> rows;
            for (const Dataset& part : parts_) {
                if (part.size() > 0) {
                    rows.push_back(first_of(part));
                }
            }
            std::erase_if(rows, [](const Batch& row) { return row.size() == 0; });
            if (!rows.empty()) {
                static_cast<void>(concatenate(rows));
            }
        });
    }

private:
    [[nodiscard]] static Batch first_of(const Dataset& part) {
        const auto blocks = part.blocks();
        return blocks ? blocks->source().open(blocks->block_of(0), 0)->next(1)
                      : part.rows(at::zeros({1}, at::kLong));
    }

    std::vector<Dataset> parts_;
    mutable std::once_flag once_;
};

/// The blocks of several data sets, concatenated.
class BlocksOfAll : public Dataset::BlockSource {
public:
    /// Throws DataError [RT-D19] when rows are read.
    BlocksOfAll(std::vector<std::shared_ptr<const BlockIndex>> parts,
                std::shared_ptr<const LikeRows> rows)
        : parts_(std::move(parts)), rows_(std::move(rows)) {}

    [[nodiscard]] std::vector<Block> blocks() const override {
        std::vector<Block> blocks;
        for (const auto& part : parts_) {
            const auto more = part->source().blocks();
            blocks.insert(blocks.end(), more.begin(), more.end());
        }
        return blocks;
    }
    [[nodiscard]] Batch read(std::int64_t block) const override {
        rows_->require();
        return source_of(block).read(block);
    }
    [[nodiscard]] std::unique_ptr<Cursor> open(std::int64_t block,
                                               std::int64_t first_row) const override {
        rows_->require();
        const auto& source = source_of(block);
        return source.open(block, first_row);
    }
    [[nodiscard]] std::string name_of(std::int64_t block) const override {
        const auto& source = source_of(block);
        return source.name_of(block);
    }
    [[nodiscard]] bool is_fixed() const override {
        return std::ranges::all_of(parts_,
                                   [](const auto& part) { return part->source().is_fixed(); });
    }

private:
    /// The part that has this block; `block` becomes its number in that part.
    [[nodiscard]] const Dataset::BlockSource& source_of(std::int64_t& block) const {
        auto part = parts_.begin();
        for (; block >= (*part)->size(); ++part) {
            block -= (*part)->size();
        }
        return (*part)->source();
    }

    std::vector<std::shared_ptr<const BlockIndex>> parts_;
    std::shared_ptr<const LikeRows> rows_;
};

/// The content of a data set made from these.
[[nodiscard]] inline std::uint64_t content_of(const std::vector<Dataset>& parts) {
    std::uint64_t content = 0;
    for (const Dataset& part : parts) {
        const std::uint64_t of_part = part.content();
        content = of_part == 0 && content == 0 ? 0 : hash_of(content, of_part);
    }
    return content;
}

/// All rows of one data set, then all of the next.
class UnionOfRows : public Dataset::Source {
public:
    explicit UnionOfRows(std::vector<Dataset> parts)
        : parts_(std::move(parts)), rows_(std::make_shared<const LikeRows>(parts_)) {
        std::vector<std::shared_ptr<const BlockIndex>> blocks;
        for (const Dataset& part : parts_) {
            ends_.push_back(size() + part.size());
            if (auto of_part = part.blocks()) {
                blocks.push_back(std::move(of_part));
            }
        }
        if (blocks.size() == parts_.size()) {
            blocks_ = std::make_shared<const BlockIndex>(
                std::make_shared<BlocksOfAll>(std::move(blocks), rows_));
        }
    }

    [[nodiscard]] std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
    /// Throws DataError [RT-D19].
    [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
        rows_->require();
        const auto locate = [this](std::int64_t row) { return locate_row(ends_, row); };
        return gather_rows(indices, locate, [this](std::int64_t part, const at::Tensor& rows) {
            return parts_[static_cast<std::size_t>(part)].rows(rows);
        });
    }
    [[nodiscard]] std::shared_ptr<const BlockIndex> blocks() const override { return blocks_; }
    [[nodiscard]] std::uint64_t content() const override { return content_of(parts_); }

private:
    std::vector<Dataset> parts_;
    std::shared_ptr<const LikeRows> rows_;
    std::vector<std::int64_t> ends_;
    std::shared_ptr<const BlockIndex> blocks_;
};

/// The columns of both. Throws DataError [RT-D67] if both have the same column.
[[nodiscard]] inline Batch join_columns(const Batch& left, const Batch& right) {
    const auto both = [](auto columns, const auto& more) {
        columns.insert(columns.end(), more.begin(), more.end());
        return columns;
    };
    Batch joined(both(left.columns(), right.columns()),
                 both(left.ragged_columns(), right.ragged_columns()),
                 both(left.masks(), right.masks()));
    std::vector<std::string> names;
    const auto add = [&](const auto& columns) {
        for (const auto& [name, column] : columns) {
            names.push_back(name);
        }
    };
    add(joined.columns());
    add(joined.ragged_columns());
    std::ranges::sort(names);
    if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
        throw DataError("RT-D67",
                        detail::concat("zip() has two columns \"", *twice,
                                       "\"; call select_columns() or map_batches() first"));
    }
    return joined;
}

/// Row i of one joined with row i of the other.
class ZipOfRows : public Dataset::Source {
public:
    /// Throws DataError [RT-D66].
    ZipOfRows(Dataset left, Dataset right) : left_(std::move(left)), right_(std::move(right)) {
        if (left_.size() != right_.size()) {
            throw DataError("RT-D66",
                            detail::concat("zip() was given ", left_.size(), " and ", right_.size(),
                                           " rows; expected the same number"));
        }
    }

    [[nodiscard]] std::int64_t size() const override { return left_.size(); }
    [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
        return join_columns(left_.rows(indices), right_.rows(indices));
    }
    [[nodiscard]] std::uint64_t content() const override { return content_of({left_, right_}); }

private:
    Dataset left_;
    Dataset right_;
};

/// Determines which data set each of a thousand rows comes from: as many of each as its weight
/// says, spread evenly. Smooth weighted round-robin, as in nginx's choice of servers. In each turn,
/// every data set gains its weight, and the one with the most is chosen and pays the sum.
class MixOrder {
public:
    static constexpr std::int64_t period = 1000;

    /// Throws DataError [RT-D68].
    explicit MixOrder(const std::vector<double>& weights) : counts_(counts_of(weights)) {
        std::vector<std::int64_t> owed(counts_.size());
        std::vector<std::int64_t> taken(counts_.size());
        for (PartRow& turn : turns_) {
            for (std::size_t part = 0; part < owed.size(); ++part) {
                owed[part] += counts_[part];
            }
            const auto chosen =
                static_cast<std::size_t>(std::ranges::max_element(owed) - owed.begin());
            owed[chosen] -= period;
            turn = {static_cast<std::int64_t>(chosen), taken[chosen]++};
        }
    }

    /// The data set and row at a position.
    [[nodiscard]] PartRow operator[](std::int64_t place) const {
        const PartRow& turn = turns_[static_cast<std::size_t>(place % period)];
        return {turn.part,
                place / period * counts_[static_cast<std::size_t>(turn.part)] + turn.row};
    }

    /// The number of positions until one of the data sets has no more rows.
    [[nodiscard]] std::int64_t places(const std::vector<std::int64_t>& rows) const {
        std::int64_t whole = std::numeric_limits<std::int64_t>::max() / period - 1;
        for (std::size_t part = 0; part < rows.size(); ++part) {
            whole = std::min(whole, rows[part] / counts_[part]);
        }
        std::int64_t place = whole * period;
        while ((*this)[place].row < rows[static_cast<std::size_t>((*this)[place].part)]) {
            ++place;
        }
        return place;
    }

private:
    /// Rows of each in a period, by largest remainder.
    [[nodiscard]] static std::vector<std::int64_t> counts_of(const std::vector<double>& weights) {
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        std::vector<std::int64_t> counts;
        std::vector<std::pair<double, std::size_t>> remainders;
        for (const double weight : weights) {
            const double exact = weight / sum * period;
            if (!(weight > 0) || !std::isfinite(exact) || exact < 1) {
                throw DataError("RT-D68",
                                detail::concat("mix() was given the weight ", weight,
                                               "; expected a finite number above 0, and at least "
                                               "a thousandth of all"));
            }
            remainders.emplace_back(std::floor(exact) - exact, counts.size());
            counts.push_back(static_cast<std::int64_t>(exact));
        }
        std::ranges::sort(remainders);
        const auto missing =
            period - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
        for (std::int64_t i = 0; i < missing; ++i) {
            ++counts[remainders[static_cast<std::size_t>(i)].second];
        }
        return counts;
    }

    std::vector<std::int64_t> counts_;
    std::array<PartRow, period> turns_{}; ///< rows are numbered within the period
};

/// Rows of several data sets in fixed proportions, each in its order, until one is exhausted.
class MixOfRows : public Dataset::Source {
public:
    /// Throws DataError [RT-D68].
    MixOfRows(std::vector<Dataset> parts, const std::vector<double>& weights)
        : parts_(std::move(parts)), rows_(parts_), order_(weights) {
        std::vector<std::int64_t> rows;
        for (const Dataset& part : parts_) {
            rows.push_back(part.size());
        }
        size_ = order_.places(rows);
    }

    [[nodiscard]] std::int64_t size() const override { return size_; }
    /// Throws DataError [RT-D19].
    [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
        rows_.require();
        return gather_rows(
            indices, [this](std::int64_t place) { return order_[place]; },
            [this](std::int64_t part, const at::Tensor& rows) {
                return parts_[static_cast<std::size_t>(part)].rows(rows);
            });
    }
    [[nodiscard]] std::uint64_t content() const override { return content_of(parts_); }

private:
    std::vector<Dataset> parts_;
    LikeRows rows_;
    MixOrder order_;
    std::int64_t size_ = 0;
};

/// A data set made of `parts`, with its own blocks if one of them is read in blocks.
[[nodiscard]] inline Dataset in_blocks_of(const std::vector<Dataset>& parts,
                                          const Dataset& dataset) {
    std::int64_t blocks = 0;
    std::int64_t row_bytes = 0;
    for (const Dataset& part : parts) {
        if (const auto index = part.blocks()) {
            blocks += index->size();
            row_bytes += index->row_bytes();
        }
    }
    return blocks == 0 ? dataset
                       : Dataset(std::make_shared<Repartitioned>(dataset, blocks, row_bytes));
}

} // namespace rtrain::data
