// SPDX-License-Identifier: Apache-2.0
/// @file
/// The rows of a pass over batches; blocks that count how often they are read.
#pragma once

#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/process/context.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include <torch/torch.h>

namespace test {

/// The rows that one pass over the batches brings, batch by batch.
template <class Batches>
std::vector<std::vector<std::int64_t>> pass(Batches& batches) {
    std::vector<std::vector<std::int64_t>> rows;
    for (auto& batch : batches) {
        const auto x = batch["x"].contiguous();
        rows.emplace_back(x.template data_ptr<std::int64_t>(),
                          x.template data_ptr<std::int64_t>() + x.numel());
    }
    return rows;
}

/// Blocks of rows that are their own numbers, and how often each was read.
class Counted : public rtrain::data::Dataset::BlockSource {
public:
    explicit Counted(std::vector<std::int64_t> rows) : rows_(std::move(rows)) {
        reads.resize(rows_.size());
    }
    [[nodiscard]] std::vector<Block> blocks() const override {
        std::vector<Block> blocks;
        for (const std::int64_t rows : rows_) {
            blocks.push_back({.rows = rows});
        }
        return blocks;
    }
    [[nodiscard]] rtrain::data::Batch read(std::int64_t block) const override {
        const auto end = rows_.begin() + block;
        const auto begin = std::accumulate(rows_.begin(), end, std::int64_t{0});
        ++reads.at(static_cast<std::size_t>(block));
        const auto x = torch::arange(begin, begin + *end + surplus);
        return rtrain::data::Batch({{"x", x}, {"pair", torch::stack({x, -x}, 1)}});
    }
    mutable std::vector<int> reads;
    std::int64_t surplus = 0;

private:
    std::vector<std::int64_t> rows_;
};

inline std::vector<std::int64_t>
sorted(const std::vector<std::vector<std::vector<std::int64_t>>>& of_ranks) {
    std::vector<std::int64_t> all;
    for (const auto& batches : of_ranks) {
        for (const auto& batch : batches) {
            all.insert(all.end(), batch.begin(), batch.end());
        }
    }
    std::ranges::sort(all);
    return all;
}

/// Ranks have equally many batches, unless there are fewer rows than ranks.
inline void check_equal_batches(const std::vector<std::vector<std::vector<std::int64_t>>>& of_ranks,
                                std::int64_t rows) {
    for (const auto& batches : of_ranks) {
        CHECK((rows < std::ssize(of_ranks) || batches.size() == of_ranks.front().size()));
        CHECK(std::ranges::none_of(batches, [](const auto& batch) { return batch.empty(); }));
    }
}

} // namespace test
