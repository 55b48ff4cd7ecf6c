// SPDX-License-Identifier: Apache-2.0
#include "data/passes.hpp"
#include "support/training.hpp"

#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/order/permuted.hpp>
#include <rtrain/data/order/sharded.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/process/context.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <type_traits>

using namespace rtrain;
using test::code_of;
using test::Counted;
using test::pass;

TEST_CASE_TEMPLATE("Blocks.are_read_as_rows_are", D, data::Sharded, data::Permuted) {
    const auto blocks = std::make_shared<Counted>(std::vector<std::int64_t>{3, 0, 4, 1, 11, 2, 0});
    const auto x = torch::arange(21);
    const auto rows = data::from_tensors({{"x", x}, {"pair", torch::stack({x, -x}, 1)}});
    for (const bool shuffle : {false, true}) {
        for (const int rank : {0, 1}) {
            CAPTURE(shuffle);
            CAPTURE(rank);
            const auto over = [&](const data::Dataset& dataset, const data::Position& from) {
                return data::Batches({.dataset = dataset, .policy = D{}, .rank = rank, .size = 2},
                                     {.size = 4, .shuffle = shuffle, .seed = 3},
                                     std::make_shared<data::Position>(from));
            };
            for (const data::Position& from : {data::Position{0, 0}, data::Position{2, 8}}) {
                auto by_row = over(rows, from);
                auto by_block = over(data::from_blocks(blocks), from);
                const auto expected = pass(by_row);
                CHECK(expected.size() == (from.samples == 0 ? 3 : 2));
                CHECK(pass(by_block) == expected);
                CHECK(pass(by_block) == pass(by_row)); // and the next epoch
            }
        }
    }
}

TEST_CASE("Blocks.are_read_once_in_order") {
    const auto blocks = std::make_shared<Counted>(std::vector<std::int64_t>{3, 0, 4, 1});
    const auto dataset = data::from_blocks(blocks);
    CHECK(dataset.size() == 8);
    CHECK(blocks->reads == std::vector<int>{0, 0, 0, 0});
    data::Batches batches({.dataset = dataset, .policy = data::Sharded{}}, {.size = 2},
                          std::make_shared<data::Position>());
    CHECK(pass(batches) == std::vector<std::vector<std::int64_t>>{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
    CHECK(blocks->reads == std::vector<int>{1, 0, 1, 1});
    const auto some = dataset.rows(torch::tensor({7, 0, 4, 0}, torch::kLong));
    CHECK(some["pair"].equal(torch::tensor({{7, -7}, {0, 0}, {4, -4}, {0, 0}}, torch::kLong)));
}

TEST_CASE("Blocks.are_kept_by_a_shuffled_loop") {
    const auto blocks = std::make_shared<Counted>(std::vector<std::int64_t>{3, 0, 4, 1, 11, 2, 0});
    for (const std::int64_t size : {1, 4}) {
        data::Batches batches({.dataset = data::from_blocks(blocks), .policy = data::Sharded{}},
                              {.size = size, .shuffle = true}, std::make_shared<data::Position>());
        CHECK(pass(batches) != pass(batches));
        CHECK(blocks->reads == std::vector<int>{1, 0, 1, 1, 1, 1, 0});
        blocks->reads.assign(7, 0);
    }
    // What functions make, which may be drawn at random, is made again.
    int calls = 0;
    const auto counted = data::from_blocks(blocks)
                             .map_batches([&](data::Batch batch) {
                                 ++calls;
                                 return batch;
                             })
                             .filter([](const data::Batch& batch) { return batch["x"] >= 0; })
                             .counted();
    data::Batches batches({.dataset = counted, .policy = data::Sharded{}},
                          {.size = 21, .shuffle = true}, std::make_shared<data::Position>());
    (void)pass(batches);
    const int before = calls;
    (void)pass(batches);
    CHECK(calls > before);
}

TEST_CASE("Blocks.that_cannot_be_kept_are_streamed") {
    const auto blocks = std::make_shared<Counted>(std::vector<std::int64_t>(100, 10));
    const auto counted = data::from_blocks(blocks)
                             .filter([](const data::Batch& batch) { return batch["x"] >= 0; })
                             .counted();
    const auto same = [](data::Batch batch) { return batch; };
    for (const auto& dataset : {counted, counted.map_batches(same), counted.limit(1000)}) {
        REQUIRE(dataset.size() == 1000);
        blocks->reads.assign(100, 0);
        data::Batches batches({.dataset = dataset, .policy = data::Sharded{}},
                              {.size = 20, .shuffle = true}, std::make_shared<data::Position>());
        std::vector<std::int64_t> all;
        for (const auto& batch : pass(batches)) {
            all.insert(all.end(), batch.begin(), batch.end());
        }
        CHECK_FALSE(std::ranges::is_sorted(all));
        std::ranges::sort(all);
        CHECK(std::ssize(all) == 1000);
        CHECK(std::ranges::adjacent_find(all) == all.end());
        // By row number, each of the 50 batches reads about eighteen.
        CHECK(std::accumulate(blocks->reads.begin(), blocks->reads.end(), 0) < 400);
    }
}

TEST_CASE_TEMPLATE("Blocks.too_many_to_keep_are_streamed", D, data::Sharded, data::Replicated) {
    constexpr std::int64_t rows = 1000; // 1 KiB each, as far as is known
    const auto blocks = std::make_shared<Counted>(std::vector<std::int64_t>(100, 10));
    const bool is_split = std::is_same_v<D, data::Sharded>;
    std::vector<std::int64_t> all;
    for (const int rank : {0, 1}) {
        data::Batches batches({data::from_blocks(blocks), D{}, rank, 2},
                              {.size = 10, .shuffle = true, .memory_bytes = 480 << 10},
                              std::make_shared<data::Position>());
        CHECK(batches.size() == (is_split ? 50 : 100));
        const auto taken = pass(batches);
        CHECK(taken.size() == (is_split ? 50 : 100));
        for (const auto& batch : taken) {
            all.insert(all.end(), batch.begin(), batch.end());
        }
    }
    CHECK_FALSE(std::ranges::is_sorted(all));
    std::ranges::sort(all);
    CHECK(std::ssize(all) == (is_split ? rows : 2 * rows));
    CHECK((std::ranges::adjacent_find(all) == all.end()) == is_split);
    // Before, each of the 100 batches of a rank read ten blocks.
    CHECK(std::accumulate(blocks->reads.begin(), blocks->reads.end(), 0) < 400);
}

TEST_CASE("Blocks.with_other_numbers_of_rows_are_errors") {
    CHECK(code_of([] {
              (void)data::from_blocks(std::make_shared<Counted>(std::vector<std::int64_t>{2, -1}));
          }) == "RT-D18");
    const auto blocks = std::make_shared<Counted>(std::vector<std::int64_t>{2, 3});
    const auto dataset = data::from_blocks(blocks);
    blocks->surplus = 1;
    const auto read = [&] { (void)dataset.rows(torch::tensor({3}, torch::kLong)); };
    CHECK(code_of(read) == "RT-D18");
    CHECK(test::contains(test::message_of(read), "block 1 has 4 rows; expected 3"));
}
