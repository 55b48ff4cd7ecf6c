// SPDX-License-Identifier: Apache-2.0
// data::Streaming: the order over blocks, and how it is read.
#include "support/training.hpp"

#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/order/permuted.hpp>
#include <rtrain/data/order/position.hpp>
#include <rtrain/data/order/sharded.hpp>
#include <rtrain/data/order/stream_order.hpp>
#include <rtrain/data/order/streaming.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/data/stream/stream_batch_sampler.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/testing/data_policy.hpp>

#include <doctest/doctest.h>

#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace stream_test {

using namespace rtrain;
using rtrain::testing::column_x;
using rtrain::testing::counts_of;
using rtrain::testing::loops_over;
using rtrain::testing::Rows;
using rtrain::testing::take;
using rtrain::testing::take_apart;
using rtrain::testing::to_the_end;
using test::code_of;
using test::contains;
using test::message_of;

namespace {

constexpr std::int64_t row_bytes = 8;

/// Rows that are their own numbers, in blocks of these many rows, and how often each was read.
class Numbers : public data::Dataset::BlockSource {
public:
    explicit Numbers(std::vector<std::int64_t> rows) : rows_(std::move(rows)) {
        begins_.resize(rows_.size() + 1);
        std::partial_sum(rows_.begin(), rows_.end(), begins_.begin() + 1);
        times_read.resize(static_cast<std::size_t>(begins_.back()));
    }
    [[nodiscard]] std::vector<Block> blocks() const override {
        std::vector<Block> blocks;
        for (const std::int64_t rows : rows_) {
            blocks.push_back({.rows = rows, .bytes = rows * row_bytes});
        }
        return blocks;
    }
    [[nodiscard]] data::Batch read(std::int64_t block) const override {
        const auto begin = begins_.at(static_cast<std::size_t>(block));
        return read_rows(begin, begin + rows_.at(static_cast<std::size_t>(block)) + surplus);
    }
    [[nodiscard]] std::int64_t size() const { return begins_.back(); }
    void forget() { std::ranges::fill(times_read, 0); }

    mutable std::vector<int> times_read; ///< by row
    std::int64_t surplus = 0;            ///< rows that a block has too many

protected:
    [[nodiscard]] data::Batch read_rows(std::int64_t begin, std::int64_t end) const {
        for (std::int64_t row = begin; row < std::min(end, size()); ++row) {
            ++times_read[static_cast<std::size_t>(row)];
        }
        return data::Batch({{"x", at::arange(begin, end, at::kLong)}});
    }
    std::vector<std::int64_t> rows_;
    std::vector<std::int64_t> begins_;
};

/// Can read part of a block, and gives at most `chunk` rows at a time.
class PartByPart : public Numbers {
public:
    explicit PartByPart(std::vector<std::int64_t> rows, std::int64_t its_chunk = 7)
        : Numbers(std::move(rows)), chunk(its_chunk) {}
    [[nodiscard]] std::unique_ptr<Cursor> open(std::int64_t block,
                                               std::int64_t first_row) const override {
        class Part : public Cursor {
        public:
            Part(const PartByPart& source, std::int64_t row, std::int64_t end)
                : source_(&source), row_(row), end_(end) {}
            [[nodiscard]] data::Batch next(std::int64_t rows) override {
                const std::int64_t begin = row_;
                row_ += std::min({rows, end_ - row_, source_->chunk});
                return source_->read_rows(begin, row_);
            }

        private:
            const PartByPart* source_;
            std::int64_t row_;
            std::int64_t end_;
        };
        ++opened;
        const auto begin = begins_.at(static_cast<std::size_t>(block));
        return std::make_unique<Part>(*this, begin + first_row,
                                      begin + rows_.at(static_cast<std::size_t>(block)) + surplus);
    }
    std::int64_t chunk;
    mutable std::atomic<std::int64_t> opened = 0;
};

using Random = std::mt19937; // the same numbers everywhere; distributions are not

std::int64_t between(Random& random, std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random()) % (most - least + 1);
}

/// Some are empty, some large.
std::vector<std::int64_t> random_blocks(Random& random) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(between(random, 1, 40)));
    for (auto& of_block : rows) {
        of_block = std::vector<std::int64_t>{0, 1, 5, 30, 300}[random() % 5];
        of_block = of_block > 1 ? between(random, 1, of_block) : of_block;
    }
    rows.back() += 1; // at least one
    return rows;
}

/// Enough for windows of `rows` rows.
std::int64_t memory_for(std::int64_t rows, std::int64_t lanes) {
    return 2 * lanes * rows * row_bytes;
}

template <class T>
T one_of(Random& random, const std::vector<T>& values) {
    return values[random() % values.size()];
}

struct Drawn {
    std::shared_ptr<PartByPart> blocks;
    data::Streaming policy;
    data::BatchOptions options;

    [[nodiscard]] auto loops() const {
        return loops_over<data::Streaming>(data::from_blocks(blocks), options, policy);
    }
};

Drawn draw(Random& random, std::int64_t micro_batches) {
    Drawn drawn;
    drawn.blocks = std::make_shared<PartByPart>(random_blocks(random), between(random, 1, 50));
    drawn.policy.lanes = one_of<std::int64_t>(random, {1, 2, 5, 12, 24});
    drawn.options = {.size = between(random, 1, 9),
                     .shuffle = random() % 4 != 0,
                     .seed = random(),
                     .micro_batches = micro_batches};
    drawn.options.memory_bytes = memory_for(between(random, 1, 60), 24 * drawn.policy.lanes);
    return drawn;
}

/// By micro-batch, as all ranks together take them.
std::vector<Rows> micro_batches_on(int size, const Drawn& drawn) {
    data::Position position;
    const auto of_rank = take_apart(position, size, to_the_end, drawn.loops(), column_x);
    const auto passes = static_cast<std::size_t>(drawn.options.micro_batches / size);
    std::vector<Rows> all;
    for (std::size_t begin = 0; begin < of_rank.front().size(); begin += passes) {
        for (const auto& batches : of_rank) {
            REQUIRE(begin + passes <= batches.size());
            for (std::size_t pass = 0; pass < passes; ++pass) {
                all.push_back(batches[begin + pass]);
            }
        }
    }
    return all;
}

} // namespace

TEST_CASE("Stream.has_each_row_once_on_1_to_24_ranks") {
    Random random(1);
    for (int i = 0; i < 120; ++i) {
        CAPTURE(i);
        const int ranks = i % 24 + 1;
        Drawn drawn = draw(random, i % 3 == 0 ? ranks * between(random, 1, 4) : 0);
        drawn.options.drop_last = i % 5 == 0;
        const std::int64_t rows = drawn.blocks->size();
        const std::int64_t step =
            drawn.options.size * std::max<std::int64_t>(drawn.options.micro_batches, ranks);
        data::Position position{.epoch = i % 2};
        const auto of_rank = take_apart(position, ranks, to_the_end, drawn.loops(), column_x);
        Rows all;
        std::set<std::size_t> sizes; // ranks differ by a row in the last step only
        for (const auto& batches : of_rank) {
            for (const auto& batch : batches) {
                all.insert(all.end(), batch.begin(), batch.end());
            }
            CHECK(std::ranges::all_of(batches, [](const Rows& batch) { return !batch.empty(); }));
        }
        const auto counts = counts_of(all, rows);
        if (drawn.options.drop_last) {
            CHECK(static_cast<std::int64_t>(all.size()) == rows / step * step);
            CHECK(std::ranges::max(counts) <= 1);
        } else if (rows >= ranks * 4) { // else rows are repeated
            CHECK(std::ranges::count(counts, 1) == rows);
        } else {
            CHECK(std::ranges::min(counts) >= 1);
        }
        const auto batches =
            drawn.loops()(0, ranks, std::make_shared<data::Position>(data::Position{})).size();
        CHECK(batches == static_cast<std::int64_t>(of_rank.front().size()));
    }
}

TEST_CASE("Stream.has_the_same_micro_batches_on_any_ranks_that_divide_them") {
    Random random(2);
    for (const std::int64_t micro_batches : {1, 2, 6, 8, 12, 16, 24}) {
        for (int i = 0; i < 6; ++i) {
            const Drawn drawn = draw(random, micro_batches);
            const auto expected = micro_batches_on(1, drawn);
            for (int ranks = 2; ranks <= drawn.policy.lanes; ++ranks) {
                if (micro_batches % ranks == 0) {
                    CAPTURE(ranks);
                    CAPTURE(micro_batches);
                    CAPTURE(drawn.policy.lanes);
                    CHECK(micro_batches_on(ranks, drawn) == expected);
                }
            }
        }
    }
}

TEST_CASE("Stream.goes_on_on_other_ranks") {
    Random random(3);
    for (int i = 0; i < 120; ++i) {
        CAPTURE(i);
        Drawn drawn = draw(random, i % 2 == 0 ? 24 : 0);
        drawn.policy.lanes = one_of<std::int64_t>(random, {24, 30});
        const std::int64_t rows = drawn.blocks->size();
        data::Position position{.epoch = 1};
        Rows all;
        while (position.epoch == 1 && rows - position.samples >= 24) { // else some are repeated
            const int ranks = one_of<int>(random, {1, 2, 3, 4, 6, 8, 12, 24});
            const auto passes = std::max<std::int64_t>(drawn.options.micro_batches / ranks, 1);
            const auto steps = static_cast<int>(between(random, 1, 5) * passes);
            const Rows some = take(position, ranks, steps, drawn.loops(), column_x);
            all.insert(all.end(), some.begin(), some.end());
        }
        const auto counts = counts_of(all, rows);
        CHECK(std::ranges::count(counts, 1) == (position.epoch == 1 ? position.samples : rows));
        CHECK(std::ranges::max(counts) <= 1);
    }
}

TEST_CASE("Stream.reads_no_row_twice_on_ranks_that_divide_lanes") {
    Random random(4);
    for (const int ranks : {1, 2, 3, 4, 6, 8, 12, 24}) {
        for (int i = 0; i < 8; ++i) {
            CAPTURE(ranks);
            CAPTURE(i);
            Drawn drawn =
                draw(random, std::vector<std::int64_t>{0, 2, 3, 16}[random() % 4] * ranks);
            drawn.policy.lanes = 24;
            if (drawn.blocks->size() < 200) {
                continue;
            }
            data::Position position;
            (void)take_apart(position, ranks, to_the_end, drawn.loops(), column_x);
            CHECK(std::ranges::count(drawn.blocks->times_read, 1) == drawn.blocks->size());
        }
    }
}

TEST_CASE("Stream.enters_a_place_without_what_lies_before_its_windows") {
    const auto blocks =
        std::make_shared<PartByPart>(std::vector<std::int64_t>{500, 10, 10, 0, 700, 90, 300, 400});
    const data::BatchOptions options{
        .size = 8, .shuffle = true, .seed = 9, .memory_bytes = memory_for(13, 6)};
    const data::Streaming policy{.lanes = 6};
    const auto dataset = data::from_blocks(blocks);
    const data::StreamOrder order(dataset.blocks()->ends(), {.lanes = 6, .window = 13}, true,
                                  data::hash_of(options.seed, 0));
    for (const std::int64_t taken : {0, 77, 78, 79, 1000, 2009}) {
        CAPTURE(taken);
        blocks->forget();
        data::Position position{.samples = taken};
        (void)take(position, 1, 1, loops_over<data::Streaming>(dataset, options, policy), column_x);
        CHECK(position.samples == std::min<std::int64_t>(taken + 8, 2010));
        // One window of each lane, or two where the batch is at their border.
        std::int64_t expected = 0;
        for (std::int64_t lane = 0; lane < 6; ++lane) {
            std::set<std::int64_t> windows;
            for (std::int64_t place = taken; place < std::min<std::int64_t>(taken + 8, 2010);
                 ++place) {
                if (place % 6 == lane) {
                    windows.insert(order.find(place).window);
                }
            }
            for (const std::int64_t window : windows) {
                expected += order.rows_of(lane, window);
                for (const auto& [block, first_row, rows] : order.pieces_of(lane, window)) {
                    for (std::int64_t row = first_row; row < first_row + rows; ++row) {
                        CHECK(blocks->times_read.at(static_cast<std::size_t>(
                                  dataset.blocks()->begin_of(block) + row)) == 1);
                    }
                }
            }
        }
        CHECK(std::accumulate(blocks->times_read.begin(), blocks->times_read.end(),
                              std::int64_t{0}) == expected);
    }
}

TEST_CASE("Stream.keeps_no_more_than_its_memory") {
    Random random(6);
    for (int i = 0; i < 30; ++i) {
        CAPTURE(i);
        std::vector<std::int64_t> rows(200);
        for (auto& of_block : rows) {
            of_block = between(random, 0, 90);
        }
        const auto own = std::make_shared<PartByPart>(rows);
        const auto whole = std::make_shared<Numbers>(rows); // whose cursors keep a block
        const std::int64_t memory = memory_for(40, 12);
        for (const auto& blocks : {std::shared_ptr<Numbers>(own), whole}) {
            const auto index = std::make_shared<const data::BlockIndex>(blocks);
            const int ranks = one_of<int>(random, {1, 2, 3, 5, 12});
            const std::int64_t size = between(random, 1, 30);
            const auto shape = data::stream_shape(*index, 12, ranks, memory);
            REQUIRE(shape.window == 40);
            data::StreamReader reader(index, {index->ends(), shape, true, 7}, memory);
            const data::Steps steps{index->rows(), size, ranks};
            std::int64_t most = 0;
            for (std::int64_t taken = 0; steps.step_at(taken) > 0; taken += steps.step_at(taken)) {
                (void)reader.rows(
                    *reader.plan(steps.strided_micro_batch(taken, ranks / 2, shape.lanes)));
                most = std::max(most, reader.bytes());
            }
            const bool divides = 12 % ranks == 0;
            CHECK(most <= memory / 2 / (divides ? ranks : 1) + (blocks == own ? 0 : memory / 4));
            CHECK(most > 0);
        }
    }
}

TEST_CASE("Stream.a_lane_goes_on_with_the_cursor_of_the_one_that_ends_where_it_begins") {
    const auto blocks = std::make_shared<PartByPart>(std::vector<std::int64_t>(4, 97));
    const data::BatchOptions options{.size = 10, .shuffle = true, .memory_bytes = 1 << 20};
    const auto loops = loops_over<data::Streaming>(data::from_blocks(blocks), options,
                                                   data::Streaming{.lanes = 6});
    data::Position position;
    for (int epoch = 1; epoch <= 2; ++epoch) {
        const auto rows = take(position, 1, to_the_end, loops, column_x);
        CHECK(std::set(rows.begin(), rows.end()).size() == 4 * 97);
        CHECK(blocks->opened == 4 * epoch); // and no row is read for nothing
    }
}

TEST_CASE("Stream.windows_of_other_columns_are_an_error") {
    class Blocks : public data::Dataset::BlockSource {
    public:
        explicit Blocks(std::vector<data::Batch> blocks) : blocks_(std::move(blocks)) {}
        [[nodiscard]] std::vector<Block> blocks() const override {
            return {2, Block{.rows = 3, .bytes = 3 * row_bytes}};
        }
        [[nodiscard]] data::Batch read(std::int64_t block) const override {
            return blocks_.at(static_cast<std::size_t>(block));
        }

    private:
        std::vector<data::Batch> blocks_;
    };
    const auto text_of = [](const data::Batch& other) {
        const data::Batch first({{"x", at::arange(3)}});
        const auto dataset =
            data::from_blocks(std::make_shared<Blocks>(std::vector<data::Batch>{first, other}));
        data::Batches batches({.dataset = dataset, .policy = data::Streaming{.lanes = 2}},
                              {.size = 6}, std::make_shared<data::Position>());
        return message_of([&] { (void)*batches.begin(); });
    };
    const auto named = text_of(data::Batch({{"y", at::arange(3)}}));
    CHECK(contains(named, "RT-D19"));
    CHECK(contains(named, "column \"x\" is not in all of them"));
    CHECK(contains(text_of(data::Batch({{"x", at::arange(3, at::kInt)}})),
                   "column \"x\" is Long in some rows and Int in others"));
    CHECK(contains(text_of(data::Batch({{"x", at::zeros({3, 2}, at::kLong)}})),
                   "column \"x\" is Long in some rows and Long of shape [2] in others"));
    CHECK(contains(text_of(data::Batch({{"x", at::arange(3)}, {"y", at::arange(3)}})), "RT-D19"));
    const data::Ragged lists{at::arange(3), at::arange(4)};
    CHECK(contains(text_of(data::Batch({}, {{"x", lists}})), "RT-D19"));
}

TEST_CASE("Stream.reads_windows_ahead_within_its_memory") {
    const auto blocks = std::make_shared<PartByPart>(std::vector<std::int64_t>(50, 97));
    const auto index = std::make_shared<const data::BlockIndex>(blocks);
    const std::int64_t memory = memory_for(40, 12);
    for (const int ranks : {1, 2, 5}) {
        CAPTURE(ranks);
        const auto shape = data::stream_shape(*index, 12, ranks, memory);
        data::StreamReader reader(index, {index->ends(), shape, true, 7}, memory);
        const data::Steps steps{index->rows(), 10, ranks};
        blocks->forget();
        std::int64_t taken = 0;
        for (; steps.step_at(taken) > 0; taken += steps.step_at(taken)) {
            const auto plan = reader.plan(steps.strided_micro_batch(taken, 0, shape.lanes));
            const auto read = std::accumulate(blocks->times_read.begin(), blocks->times_read.end(),
                                              std::int64_t{0});
            (void)reader.rows(*plan);
            const auto now_read = std::accumulate(blocks->times_read.begin(),
                                                  blocks->times_read.end(), std::int64_t{0});
            if (ranks == 2 && taken > 0) { // two windows of each of its lanes have room
                CHECK(now_read == read);
            }
            while (reader.read_ahead()) {
            }
            CHECK(reader.bytes() <= memory / 8 * 7);
            CHECK(
                (now_read == index->rows() || taken > 4000 || reader.bytes() > memory / 2 / ranks));
        }
        CHECK(std::ranges::max(blocks->times_read) == 1);
    }
}

namespace {

/// Throws in place of a block.
class Broken : public PartByPart {
public:
    using PartByPart::PartByPart;
    [[nodiscard]] std::unique_ptr<Cursor> open(std::int64_t block,
                                               std::int64_t first_row) const override {
        if (block == broken) {
            throw DataError("RT-D4", "broken");
        }
        return PartByPart::open(block, first_row);
    }
    std::int64_t broken = -1;
};

} // namespace

TEST_CASE("Stream.has_the_same_batches_with_any_number_of_threads") {
    Random random(11);
    for (int i = 0; i < 24; ++i) {
        CAPTURE(i);
        Drawn drawn = draw(random, std::vector<std::int64_t>{0, 0, 4, 10}[random() % 4]);
        const auto blocks = std::make_shared<Broken>(random_blocks(random), between(random, 1, 50));
        drawn.blocks = blocks;
        drawn.options.memory_bytes = memory_for(between(random, 1, 9), drawn.policy.lanes);
        const int ranks = one_of<int>(random, {1, 2});
        const std::int64_t from = between(random, 0, 1) * between(random, 0, blocks->size() - 1);
        const auto with = [&](int threads) {
            drawn.options.threads = threads;
            drawn.options.prefetch = threads == 4 ? 1 : 0;
            data::Position position{.epoch = 1, .samples = from};
            return take_apart(position, ranks, to_the_end, drawn.loops(), column_x);
        };
        const auto expected = with(0);
        for (const int threads : {1, 2, 4}) {
            CAPTURE(threads);
            blocks->forget();
            CHECK(with(threads) == expected);
            if (ranks == 1) {
                CHECK(std::ranges::max(blocks->times_read) <= (drawn.options.drop_last ? 2 : 1));
            }
        }

        // What a block throws comes where it did without threads, and loops may end early.
        blocks->broken = between(random, 0, static_cast<std::int64_t>(blocks->blocks().size()) - 1);
        const auto until_broken = [&](int threads, int batches) {
            drawn.options.threads = threads;
            std::vector<Rows> taken;
            const std::string code = code_of([&] {
                auto loop = drawn.loops()(0, 1, std::make_shared<data::Position>());
                for (auto& batch : loop) {
                    rtrain::testing::append(taken.emplace_back(), batch["x"]);
                    if (--batches == 0) {
                        break;
                    }
                }
            });
            return std::pair(code, taken);
        };
        for (const int batches : {0, 2}) {
            const auto alone = until_broken(0, batches);
            CHECK(until_broken(2, batches) == alone);
            CHECK(until_broken(4, batches) == alone);
        }
    }
}

TEST_CASE("Stream.reads_blocks_whole_where_a_source_cannot_do_otherwise") {
    const auto blocks = std::make_shared<Numbers>(std::vector<std::int64_t>{96, 96, 96, 96});
    const auto loops = [&](std::int64_t memory_bytes) {
        return loops_over<data::Streaming>(
            data::from_blocks(blocks), {.size = 8, .shuffle = true, .memory_bytes = memory_bytes},
            data::Streaming{.lanes = 4});
    };
    const auto times = [&](std::int64_t memory_bytes) {
        blocks->forget();
        data::Position position;
        (void)take(position, 1, to_the_end, loops(memory_bytes), column_x);
        return std::ranges::max(blocks->times_read);
    };
    CHECK(times(memory_for(96, 4)) == 1);  // a window is a block
    CHECK(times(memory_for(960, 4)) == 1); // no window is longer than its lane
    CHECK(times(memory_for(48, 4)) <= 2);  // there is not room for all blocks between windows
    CHECK(times(memory_for(12, 4)) == 8);  // nor for any
}

TEST_CASE("Stream.goes_on_in_a_block_where_the_window_before_has_ended") {
    const auto blocks = std::make_shared<PartByPart>(std::vector<std::int64_t>{480, 480, 0, 480});
    data::Position position;
    (void)take(
        position, 2, to_the_end,
        loops_over<data::Streaming>(data::from_blocks(blocks),
                                    {.size = 8, .shuffle = true, .memory_bytes = memory_for(7, 12)},
                                    data::Streaming{.lanes = 12}),
        column_x);
    CHECK(blocks->opened == 12); // lanes end where blocks do
}

TEST_CASE("Stream.mixes_rows_that_are_sorted_by_class") {
    constexpr std::int64_t classes = 10;
    constexpr std::int64_t of_class = 6000;
    constexpr std::int64_t size = 100;
    const auto blocks = std::make_shared<Numbers>(
        std::vector<std::int64_t>(static_cast<std::size_t>(classes * of_class / 12), 12));
    data::Batches batches(
        {.dataset = data::from_blocks(blocks), .policy = data::Streaming{}},
        {.size = size, .shuffle = true, .seed = 3, .memory_bytes = memory_for(1250, 24)},
        std::make_shared<data::Position>());
    std::vector<Rows> taken;
    for (auto& batch : batches) {
        rtrain::testing::append(taken.emplace_back(), batch["x"]);
    }
    const std::size_t tenth = taken.size() / 10;
    for (const std::size_t begin : {std::size_t{0}, taken.size() - tenth}) {
        double chi_square = 0;
        for (std::size_t i = begin; i < begin + tenth; ++i) {
            REQUIRE(taken[i].size() == size);
            std::vector<double> counts(classes);
            for (const std::int64_t row : taken[i]) {
                ++counts[static_cast<std::size_t>(row / of_class)];
            }
            for (const double count : counts) {
                const double expected = static_cast<double>(size) / classes;
                chi_square += (count - expected) * (count - expected) / expected;
            }
        }
        // Nearly normal for so many degrees of freedom: within 3.3 standard deviations, p = 0.001.
        const double degrees = static_cast<double>(tenth) * (classes - 1);
        CAPTURE(begin);
        CHECK(std::abs(chi_square - degrees) < 3.3 * std::sqrt(2 * degrees));
    }
}

TEST_CASE("Stream.tells_who_watches_what_is_read") {
    class Watched : public PartByPart {
    public:
        using PartByPart::PartByPart;
        [[nodiscard]] std::unique_ptr<Cursor> open(std::int64_t block,
                                                   std::int64_t first_row) const override {
            told = told && ProcessContext::current().readings.longest() == name_of(block);
            return PartByPart::open(block, first_row);
        }
        mutable bool told = true;
    };
    const auto blocks = std::make_shared<Watched>(std::vector<std::int64_t>{40, 30, 50});
    data::Position position;
    (void)take(position, 1, to_the_end,
               loops_over<data::Streaming>(data::from_blocks(blocks), {.size = 8}), column_x);
    CHECK(blocks->opened == 3);
    CHECK(blocks->told);
    CHECK(ProcessContext::current().readings.longest().empty());
}

TEST_CASE("Stream.without_shuffle_takes_lanes_in_turns") {
    const auto blocks = std::make_shared<Numbers>(std::vector<std::int64_t>{4, 3, 4});
    const auto loops = loops_over<data::Streaming>(data::from_blocks(blocks), {.size = 4},
                                                   data::Streaming{.lanes = 3});
    data::Position position;
    CHECK(take(position, 1, to_the_end, loops, column_x) == Rows{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7});
    CHECK(position.order == "streaming, in order, 3 lanes");
}

TEST_CASE("Stream.of_rows_by_number_is_one_permutation") {
    const data::BatchOptions options{.size = 5, .shuffle = true, .seed = 2};
    data::Position streamed;
    data::Position permuted;
    for (const int ranks : {1, 3}) {
        CHECK(take(streamed, ranks, to_the_end,
                   loops_over<data::Streaming>(rtrain::testing::numbers(64), options), column_x) ==
              take(permuted, ranks, to_the_end,
                   loops_over<data::Permuted>(rtrain::testing::numbers(64), options), column_x));
    }
}

namespace {

/// All batches of each of three ranks that read the data set whole.
template <class D>
void check_read_whole(const data::Dataset& dataset, const D& policy) {
    const data::BatchOptions options{.size = 4, .shuffle = true, .seed = 8, .micro_batches = 6};
    data::BatchOptions alone = options;
    alone.micro_batches = 2;
    data::Position position;
    const auto expected =
        take_apart(position, 1, to_the_end, loops_over<D>(dataset, alone, policy), column_x);
    const auto whole = [&](int rank, int size, const std::shared_ptr<data::Position>& place) {
        return data::Batches(
            {.dataset = dataset, .policy = policy, .rank = rank, .size = size, .is_split = false},
            options, place);
    };
    data::Position on_three;
    const auto some = take_apart(on_three, 3, 2, whole, column_x);
    const auto rest = take_apart(on_three, 3, to_the_end, whole, column_x);
    CHECK(on_three.epoch == 1);
    for (std::size_t rank = 0; rank < 3; ++rank) {
        auto all = some[rank];
        all.insert(all.end(), rest[rank].begin(), rest[rank].end());
        CHECK(all == expected.front());
    }
}

} // namespace

TEST_CASE("Stream.is_read_whole_by_each_rank_where_it_is_not_to_be_split") {
    const auto blocks =
        data::from_blocks(std::make_shared<PartByPart>(std::vector<std::int64_t>{30, 0, 21}));
    check_read_whole(blocks, data::Streaming{.lanes = 2});
    check_read_whole(blocks, data::Permuted{});
    check_read_whole(blocks, data::Sharded{});
    check_read_whole(blocks, data::Replicated{});
}

TEST_CASE("Stream.says_what_is_wrong") {
    const auto blocks = std::make_shared<PartByPart>(std::vector<std::int64_t>{30, 20});
    const auto dataset = data::from_blocks(blocks);
    const data::BatchOptions options{.size = 4, .shuffle = true, .memory_bytes = memory_for(5, 24)};
    const auto pass = [&](const data::Dataset& over, const data::BatchOptions& with,
                          const data::Position& from = {}, std::int64_t lanes = 24) {
        data::Position position = from;
        (void)take(position, 1, 3, loops_over<data::Streaming>(over, with, {.lanes = lanes}),
                   column_x);
        return position;
    };
    data::BatchOptions little = options;
    little.memory_bytes = memory_for(1, 24) - 1;
    CHECK(code_of([&] { pass(dataset, little); }) == "RT-D20");
    CHECK(contains(message_of([&] { pass(dataset, little); }), "at least 384"));
    little.memory_bytes = memory_for(1, 24);
    pass(dataset, little);
    CHECK(code_of([&] { pass(dataset, options, {}, 0); }) == "RT-D22");
    CHECK(code_of([&] {
              pass(data::from_blocks(std::make_shared<Numbers>(std::vector<std::int64_t>{0, 0})),
                   options);
          }) == "RT-D7");

    // Another order, or other files.
    const data::Position saved = pass(dataset, options);
    CHECK(saved.samples == 12);
    CHECK(code_of([&] { pass(dataset, options, saved, 12); }) == "RT-D13");
    little.memory_bytes = memory_for(2, 24);
    CHECK(contains(message_of([&] { pass(dataset, little, saved); }), "windows of 2 rows"));
    const auto changed =
        data::from_blocks(std::make_shared<Numbers>(std::vector<std::int64_t>{20, 30}));
    CHECK(code_of([&] { pass(changed, options, saved); }) == "RT-D21");
    data::Position of_old_checkpoint = saved; // which does not know
    of_old_checkpoint.digest = 0;
    pass(changed, options, of_old_checkpoint);

    // Blocks that are not as long as the index says.
    for (const std::int64_t surplus : {-1, 1}) {
        blocks->surplus = surplus;
        const auto whole = [&] {
            data::Position position;
            (void)take(position, 1, to_the_end, loops_over<data::Streaming>(dataset, options),
                       column_x);
        };
        CHECK(code_of(whole) == "RT-D18");
        CHECK(contains(message_of(whole), "rows; expected"));
    }
}

TEST_CASE("Stream.of_a_run_that_goes_on_has_the_files_of_the_checkpoint") {
    const test::Directory directory("streamed");
    Rows taken;
    const auto run = [&](std::vector<std::int64_t> rows, int stop_behind) {
        Trainer<backend::Local, data::Streaming> trainer(
            {.run = {.name = "r", .storage_path = directory.path(), .resume = Resume::always},
             .datasets = {
                 {"train", data::from_blocks(std::make_shared<PartByPart>(std::move(rows)))}}});
        return message_of([&] {
            trainer.fit([&](auto& worker) {
                int step = 0;
                const auto state = State{}.add("step", step);
                auto batches = worker.dataset_shard("train").batches(
                    {.size = 8, .shuffle = true, .memory_bytes = memory_for(2, 24)});
                for ([[maybe_unused]] const int epoch : worker.epochs(1, state)) {
                    for (auto& batch : batches) {
                        rtrain::testing::append(taken, batch["x"]);
                        worker.report({{"step", ++step}}, state);
                        if (step == stop_behind) {
                            throw std::runtime_error("stopped on purpose");
                        }
                    }
                }
            });
        });
    };
    CHECK(contains(run({60, 30, 10}, 3), "stopped on purpose"));
    CHECK(taken.size() == 24);
    CHECK(contains(run({60, 20, 20}, 0), "RT-D21"));
    CHECK(contains(run({60, 30, 11}, 0), "RT-D12"));
    CHECK(run({60, 30, 10}, 0).empty());
    CHECK(counts_of(taken, 100) == std::vector<int>(100, 1));
}

RTRAIN_TEST_DATA_POLICY(Streaming, data::Streaming{});

} // namespace stream_test
