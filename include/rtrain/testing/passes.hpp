// SPDX-License-Identifier: Apache-2.0
/// Loops over a data set that stop and resume: the rows that simulated ranks in one process read
/// together. For any loop that keeps a data::Position: batches of a shard, loaders of torch::data.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/order/position.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/testing/suite.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace rtrain::testing {

using Rows = std::vector<std::int64_t>;

inline constexpr int to_the_end = std::numeric_limits<int>::max();

/// Rows with their own index in column "x".
[[nodiscard]] inline data::Dataset numbers(std::int64_t rows) {
    return data::from_tensors({{"x", at::arange(rows, at::kLong)}});
}
inline constexpr std::int64_t number_bytes = 8;
/// The same in blocks of these row counts.
[[nodiscard]] inline data::Dataset numbers_in_blocks(std::vector<std::int64_t> rows) {
    class Numbers : public data::Dataset::BlockSource {
    public:
        explicit Numbers(std::vector<std::int64_t> blocks) : rows_(std::move(blocks)) {}
        [[nodiscard]] std::vector<Block> blocks() const override {
            std::vector<Block> all;
            for (const std::int64_t of_block : rows_) {
                all.push_back({of_block, of_block * number_bytes});
            }
            return all;
        }
        [[nodiscard]] data::Batch read(std::int64_t block) const override {
            const auto at = rows_.begin() + block;
            const std::int64_t begin = std::accumulate(rows_.begin(), at, std::int64_t{0});
            return data::Batch({{"x", at::arange(begin, begin + *at, at::kLong)}});
        }

    private:
        std::vector<std::int64_t> rows_;
    };
    return data::from_blocks(std::make_shared<Numbers>(std::move(rows)));
}
inline constexpr auto column_x = [](data::Batch& batch) { return batch["x"]; };

inline void append(Rows& rows, const at::Tensor& x) {
    const at::Tensor all = x.contiguous();
    rows.insert(rows.end(), all.data_ptr<std::int64_t>(),
                all.data_ptr<std::int64_t>() + all.numel());
}

/// Constructs a rank's loop over the batches of a data set: (rank, size, position).
template <class Policy>
[[nodiscard]] auto loops_over(const data::Dataset& dataset, const data::BatchOptions& options,
                              const Policy& policy = {}) {
    return [=](int rank, int size, const std::shared_ptr<data::Position>& position) {
        return data::Batches({.dataset = dataset, .policy = policy, .rank = rank, .size = size},
                             options, position);
    };
}

/// Returns one rank's rows in up to `steps` batches from `position`, which advances batch by batch.
template <class Loop, class RowsOf>
[[nodiscard]] std::vector<Rows> walk(Loop loop, data::Position& place, int steps,
                                     const std::shared_ptr<data::Position>& position,
                                     const RowsOf& rows_of) {
    std::vector<Rows> batches;
    for (auto& batch : loop) {
        append(batches.emplace_back(), rows_of(batch));
        place = *position;
        if (static_cast<int>(batches.size()) == steps) {
            return batches;
        }
    }
    place = *position; // the next epoch
    return batches;
}

/// Returns the rows that each of `size` ranks reads in up to `steps` batches, batch by batch. Ranks
/// must read equally many, and end at the same position.
template <class MakeLoop, class RowsOf>
[[nodiscard]] std::vector<std::vector<Rows>> take_apart(data::Position& position, int size,
                                                        int steps, const MakeLoop& make_loop,
                                                        const RowsOf& rows_of) {
    std::vector<std::vector<Rows>> of_rank;
    data::Position reached;
    for (int rank = 0; rank < size; ++rank) {
        const auto mine = std::make_shared<data::Position>(position);
        data::Position place;
        of_rank.push_back(walk(make_loop(rank, size, mine), place, steps, mine, rows_of));
        reached = rank == 0 ? place : reached;
        DOCTEST_REQUIRE(of_rank.back().size() == of_rank.front().size());
        DOCTEST_REQUIRE(place.samples == reached.samples);
        DOCTEST_REQUIRE(place.epoch == reached.epoch);
    }
    position = reached;
    position.iterating = false; // not part of a checkpoint
    return of_rank;
}

/// The same, combined: by batch and then rank.
template <class MakeLoop, class RowsOf>
[[nodiscard]] Rows take(data::Position& position, int size, int steps, const MakeLoop& make_loop,
                        const RowsOf& rows_of) {
    const auto of_rank = take_apart(position, size, steps, make_loop, rows_of);
    Rows rows;
    for (std::size_t step = 0; step < of_rank.front().size(); ++step) {
        for (const auto& batches : of_rank) {
            rows.insert(rows.end(), batches[step].begin(), batches[step].end());
        }
    }
    return rows;
}

/// Returns how often each of `rows` rows was read.
[[nodiscard]] inline std::vector<int> counts_of(const Rows& taken, std::int64_t rows) {
    std::vector<int> counts(static_cast<std::size_t>(rows));
    for (const std::int64_t row : taken) {
        ++counts.at(static_cast<std::size_t>(row));
    }
    return counts;
}

/// Saves on 1 to 8 ranks, resumes on 1 to 8, in the middle of the second epoch of 103 rows, a
/// prime. Together they read what one rank reads in the whole epoch; with `padded`, they only
/// repeat as many rows at the end as needed for equal counts.
template <class MakeLoop, class RowsOf>
void resume_on_any(const MakeLoop& make_loop, const RowsOf& rows_of, bool padded) {
    constexpr std::int64_t rows = 103;
    data::Position undisturbed{.epoch = 1};
    const Rows whole = take(undisturbed, 1, to_the_end, make_loop, rows_of);
    const auto expected = counts_of(whole, rows);
    const auto all = static_cast<std::int64_t>(whole.size());
    for (int saved_on = 1; saved_on <= 8; ++saved_on) {
        for (int resumed_on = 1; resumed_on <= 8; ++resumed_on) {
            DOCTEST_CAPTURE(saved_on);
            DOCTEST_CAPTURE(resumed_on);
            data::Position position;
            (void)take(position, saved_on, to_the_end, make_loop, rows_of);
            DOCTEST_REQUIRE(position.epoch == 1);
            DOCTEST_REQUIRE(position.samples == 0);
            Rows taken = take(position, saved_on, 2, make_loop, rows_of);
            DOCTEST_REQUIRE(position.epoch == 1);
            DOCTEST_REQUIRE(position.samples == static_cast<std::int64_t>(taken.size()));
            DOCTEST_REQUIRE(position.samples < all);
            const std::int64_t left = all - position.samples;
            const Rows rest = take(position, resumed_on, to_the_end, make_loop, rows_of);
            DOCTEST_CHECK(position.epoch == 2);
            taken.insert(taken.end(), rest.begin(), rest.end());
            const std::int64_t repeated =
                padded ? (resumed_on - left % resumed_on) % resumed_on : 0;
            DOCTEST_CHECK(static_cast<std::int64_t>(taken.size()) == all + repeated);
            const auto counts = counts_of(taken, rows);
            std::int64_t wrong = 0;
            for (std::size_t row = 0; row < counts.size(); ++row) {
                const int more = counts[row] - expected[row];
                wrong += more == 0 || (padded && more == 1) ? 0 : 1;
            }
            DOCTEST_CHECK(wrong == 0);
            if (saved_on == resumed_on) { // identical to an uninterrupted pass
                data::Position other{.epoch = 1};
                DOCTEST_CHECK((take(other, saved_on, to_the_end, make_loop, rows_of) == taken));
            }
        }
    }
}

} // namespace rtrain::testing
