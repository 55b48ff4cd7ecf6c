// SPDX-License-Identifier: Apache-2.0
// Rows whose number is not known before they are read: what filter() and flat_map() leave, counted
// or streamed, and generators.
#include "support/thrown.hpp"

#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/dataset/block_index.hpp>
#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/testing/passes.hpp>

#include <doctest/doctest.h>

#include <ATen/Functions.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace uncounted_test {

using namespace rtrain;
using data::Batch;
using data::Dataset;
using rtrain::testing::numbers;
using rtrain::testing::numbers_in_blocks;
using rtrain::testing::Rows;
using test::code_of;

namespace {

Rows x_of(const Batch& batch) {
    Rows rows;
    if (batch.size() > 0) {
        rtrain::testing::append(rows, batch["x"]);
    }
    return rows;
}

/// Keeps every n-th; none with 0.
Dataset every(std::int64_t n, const Dataset& dataset) {
    return dataset.filter([n](const Batch& batch) {
        return n == 0 ? at::zeros({batch.size()}, at::kBool) : batch["x"].remainder(n) == 0;
    });
}

/// x, x times.
Dataset repeated(const Dataset& dataset) {
    return dataset.flat_map([](const Batch& row) {
        return Batch({{"x", row["x"].repeat({row["x"].item().toLong()})}});
    });
}

/// What is left is what a loop over all rows leaves, in any way to read it.
void check_counted(const Dataset& counted, const Rows& expected) {
    REQUIRE(counted.size() == static_cast<std::int64_t>(expected.size()));
    CHECK(counted.count() == counted.size());
    CHECK(x_of(counted.take(counted.size())) == expected);
    const auto index = counted.blocks();
    REQUIRE(index);
    Rows whole;
    Rows parts;
    for (std::int64_t block = 0; block < index->size(); ++block) {
        const Rows rows = x_of(index->source().read(block));
        whole.insert(whole.end(), rows.begin(), rows.end());
        for (std::int64_t first = 0; first < index->rows_of(block); first += 5) {
            const auto cursor = index->source().open(block, first);
            std::int64_t left = std::min<std::int64_t>(5, index->rows_of(block) - first);
            while (left > 0) {
                const Batch part = cursor->next(std::min<std::int64_t>(left, 2));
                REQUIRE(part.size() > 0);
                left -= part.size();
                const Rows x = x_of(part);
                parts.insert(parts.end(), x.begin(), x.end());
            }
        }
    }
    CHECK(whole == expected);
    CHECK(parts == expected);
}

} // namespace

TEST_CASE("Uncounted.counted_rows_are_those_that_a_loop_leaves") {
    for (const Dataset& dataset : {numbers(1000), numbers_in_blocks({300, 0, 1, 699})}) {
        for (const std::int64_t n : {0, 1, 3, 100}) {
            CAPTURE(n);
            Rows expected;
            for (std::int64_t x = 0; n > 0 && x < 1000; x += n) {
                expected.push_back(x);
            }
            check_counted(every(n, dataset).counted(), expected);
        }
        Rows expected;
        for (std::int64_t x = 0; x < 1000; x += 100) { // none of row 0, then 100, 200, and so on
            expected.insert(expected.end(), static_cast<std::size_t>(x), x);
        }
        check_counted(repeated(every(100, dataset)).counted(), expected);
    }
}

TEST_CASE("Uncounted.stages_behind_filter_and_flat_map_see_what_is_left") {
    const Dataset left = repeated(numbers(6)) // 1 2 2 3 3 3 4 4 4 4 5 5 5 5 5
                             .map_batches([](const Batch& batch) {
                                 return Batch({{"y", batch["x"] * 10}, {"x", batch["x"] + 1}});
                             })
                             .filter([](const Batch& row) { return row["y"].item().toLong() > 25; })
                             .select_columns({"x"});
    CHECK(x_of(left.take(100)) == Rows{4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 6});
    CHECK(x_of(left.take(4)) == Rows{4, 4, 4, 5});
    CHECK(left.count() == 12);
    CHECK(left.schema().size() == 1);
    CHECK(x_of(left.counted().limit(2).union_with({numbers(1)}).take()) == Rows{4, 4, 0});
}

TEST_CASE("Uncounted.flat_map_gives_none_or_a_million_rows") {
    const Dataset made = numbers(3).flat_map([](const Batch& row) {
        return row["x"].item().toLong() == 1 ? Batch({{"x", at::arange(1'000'000)}}) : Batch();
    });
    CHECK(made.count() == 1'000'000);
    CHECK(x_of(made.counted().rows(at::tensor({999'999, 0}, at::kLong))) == Rows{999'999, 0});
    const Dataset none = numbers(3).flat_map([](const Batch&) { return Batch(); });
    CHECK(none.count() == 0);
    CHECK(none.take(3).size() == 0);
}

TEST_CASE("Uncounted.what_needs_the_number_of_rows_says_so") {
    const Dataset left = every(2, numbers(10));
    CHECK(code_of([&] { (void)left.size(); }) == "RT-D71");
    CHECK(code_of([&] { (void)left.rows(at::zeros({1}, at::kLong)); }) == "RT-D71");
    CHECK(code_of([&] { (void)left.limit(3).take(); }) == "RT-D71");
    CHECK(code_of([&] { (void)left.split(2)[0].take(); }) == "RT-D71");
    CHECK(code_of([&] { (void)left.train_test_split(0.5).first.take(); }) == "RT-D71");
    CHECK(code_of([&] { (void)left.repartition(2).take(); }) == "RT-D71");
    CHECK(code_of([&] { (void)left.union_with({numbers(1)}).take(); }) == "RT-D71");
    CHECK(code_of([&] { (void)numbers(5).zip(left).take(); }) == "RT-D71");
    CHECK(code_of([&] { (void)data::mix({{left, 1.0}, {numbers(5), 1.0}}).take(); }) == "RT-D71");
}

TEST_CASE("Uncounted.a_mask_is_bool_and_as_long_as_the_batch") {
    const auto with = [](const at::Tensor& mask) {
        return code_of([&] { (void)numbers(4).filter([&](const Batch&) { return mask; }).take(); });
    };
    CHECK(with(at::ones({4}, at::kBool)).empty());
    CHECK(with(at::ones({3}, at::kBool)) == "RT-D73");
    CHECK(with(at::ones({4, 1}, at::kBool)) == "RT-D73");
    CHECK(with(at::ones({4})) == "RT-D73");
    CHECK(with(at::Tensor()) == "RT-D73");
}

TEST_CASE("Uncounted.what_a_function_throws_comes_out") {
    const Dataset throws = numbers(4).filter([](const Batch& row) -> bool {
        throw std::logic_error(row["x"].size(0) == 1 ? "mine" : "");
    });
    CHECK_THROWS_WITH_AS((void)throws.count(), "mine", std::logic_error);
    CHECK_THROWS_AS((void)throws.take(), std::logic_error);
}

TEST_CASE("Uncounted.a_filter_that_keeps_others_each_time_is_an_error") {
    int calls = 0;
    const Dataset counted =
        numbers_in_blocks({4, 6})
            .filter([&](const Batch& batch) { return at::arange(batch.size()) < ++calls; })
            .counted();
    CHECK(counted.size() == 3);
    CHECK(code_of([&] { (void)counted.take(3); }) == "RT-D18");
    CHECK(test::contains(test::message_of([&] { (void)counted.take(3); }), "each time"));
}

TEST_CASE("Uncounted.rows_are_counted_once_when_they_are_first_asked_for") {
    int rows = 0;
    const Dataset counted = numbers_in_blocks({4, 6})
                                .filter([&](const Batch& batch) {
                                    rows += static_cast<int>(batch.size());
                                    return at::ones({batch.size()}, at::kBool);
                                })
                                .counted();
    CHECK(rows == 0);
    CHECK(counted.size() == 10);
    CHECK(rows == 10);
    CHECK(counted.limit(3).size() == 3);
    CHECK(rows == 10);
    CHECK(numbers(3).counted().size() == 3); // where they are known, nothing is done
}

} // namespace uncounted_test
