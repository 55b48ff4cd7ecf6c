// SPDX-License-Identifier: Apache-2.0
// Data sets made of others: their rows, their blocks, and that nothing is read before it is asked
// for.
#include "support/training.hpp"

#include <rtrain/data/dataset/block_index.hpp>
#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/dataset/joined.hpp>

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/vfs.h>
#include <unistd.h>

using namespace rtrain;
using data::Batch;
using data::Dataset;
using test::code_of;

namespace {

/// x counts from `begin`.
Dataset numbers(std::int64_t begin, std::int64_t rows) {
    return data::from_tensors({{"x", torch::arange(begin, begin + rows)}});
}

class Numbers : public Dataset::BlockSource {
public:
    explicit Numbers(std::vector<std::int64_t> rows) : rows_(std::move(rows)) {}
    [[nodiscard]] std::vector<Block> blocks() const override {
        std::vector<Block> blocks;
        for (const std::int64_t rows : rows_) {
            blocks.push_back({.rows = rows, .bytes = 8 * rows});
        }
        return blocks;
    }
    [[nodiscard]] Batch read(std::int64_t block) const override {
        std::int64_t begin = 0;
        for (std::int64_t i = 0; i < block; ++i) {
            begin += rows_[static_cast<std::size_t>(i)];
        }
        return Batch({{"x", torch::arange(begin, begin + rows_[static_cast<std::size_t>(block)])}});
    }
    [[nodiscard]] std::string name_of(std::int64_t block) const override {
        return "numbers " + std::to_string(block);
    }

private:
    std::vector<std::int64_t> rows_;
};

Dataset in_blocks(std::vector<std::int64_t> rows) {
    return data::from_blocks(std::make_shared<Numbers>(std::move(rows)));
}

std::vector<std::int64_t> x_of(const Batch& batch) {
    const auto x = batch["x"].contiguous();
    return {x.data_ptr<std::int64_t>(), x.data_ptr<std::int64_t>() + x.numel()};
}

std::vector<std::int64_t> rows_of(const Dataset& dataset) {
    return dataset.size() == 0 ? std::vector<std::int64_t>{} : x_of(dataset.take(dataset.size()));
}

/// The rows as its blocks have them, each block read whole and through a cursor.
std::vector<std::int64_t> rows_of_blocks(const Dataset& dataset) {
    const auto index = dataset.blocks();
    REQUIRE(index);
    std::vector<std::int64_t> rows;
    for (std::int64_t block = 0; block < index->size(); ++block) {
        const std::int64_t expected = index->rows_of(block);
        if (expected == 0) {
            continue;
        }
        const auto whole = x_of(index->source().read(block));
        CHECK(static_cast<std::int64_t>(whole.size()) == expected);
        std::vector<std::int64_t> parts{whole.front()};
        const auto cursor = index->source().open(block, 1);
        for (Batch part = cursor->next(2); part.size() > 0; part = cursor->next(2)) {
            for (const std::int64_t x : x_of(part)) {
                parts.push_back(x);
            }
        }
        CHECK(parts == whole);
        rows.insert(rows.end(), whole.begin(), whole.end());
    }
    return rows;
}

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> rows;
    for (std::int64_t x = begin; x < end; ++x) {
        rows.push_back(x);
    }
    return rows;
}

Batch doubled(const Batch& batch) {
    return Batch({{"x", batch["x"] * 2}});
}

} // namespace

TEST_CASE("Stages.map_batches_changes_what_is_read") {
    for (const Dataset& dataset : {numbers(0, 7), in_blocks({3, 0, 4})}) {
        const Dataset mapped = dataset.map_batches(doubled);
        CHECK(mapped.size() == 7);
        CHECK(x_of(mapped.rows(torch::tensor({6, 0, 3}, torch::kLong))) ==
              std::vector<std::int64_t>{12, 0, 6});
    }
    CHECK(rows_of_blocks(in_blocks({3, 0, 4}).map_batches(doubled)) ==
          std::vector<std::int64_t>{0, 2, 4, 6, 8, 10, 12});
}

TEST_CASE("Stages.map_sees_one_row_at_a_time") {
    const Dataset mapped = numbers(0, 5).map([](const Batch& row) {
        REQUIRE(row.size() == 1);
        return Batch({{"x", row["x"] + row["x"].sum()}});
    });
    CHECK(rows_of(mapped) == std::vector<std::int64_t>{0, 2, 4, 6, 8});
}

TEST_CASE("Stages.a_function_keeps_the_number_of_rows") {
    const Dataset half = numbers(0, 4).map_batches(
        [](const Batch& batch) { return data::slice_rows(batch, 0, batch.size() / 2); });
    CHECK(half.size() == 4);
    CHECK(code_of([&] { (void)half.take(4); }) == "RT-D65");
    const Dataset throws =
        numbers(0, 4).map_batches([](const Batch&) -> Batch { throw std::logic_error("mine"); });
    CHECK_THROWS_AS((void)throws.take(1), std::logic_error);
}

TEST_CASE("Stages.limit_and_split_are_ranges_of_rows") {
    for (const Dataset& dataset : {numbers(0, 11), in_blocks({3, 0, 4, 4})}) {
        CHECK(rows_of(dataset.limit(5)) == range(0, 5));
        CHECK(rows_of(dataset.limit(99)) == range(0, 11));
        CHECK(test::code_of([&] { (void)dataset.limit(-1); }) == "RT-D121");
        const auto parts = dataset.split(3);
        CHECK(rows_of(parts[0]) == range(0, 3));
        CHECK(rows_of(parts[1]) == range(3, 7));
        CHECK(rows_of(parts[2]) == range(7, 11));
        CHECK(rows_of(parts[2].limit(2)) == range(7, 9));
    }
    const Dataset blocks = in_blocks({3, 0, 4, 4});
    CHECK(rows_of_blocks(blocks.limit(5)) == range(0, 5));
    CHECK(rows_of_blocks(blocks.split(3)[1]) == range(3, 7));
    CHECK(rows_of_blocks(blocks.split(2)[1].limit(3)) == range(5, 8));
    CHECK(blocks.split(2)[1].blocks()->source().name_of(0) == "numbers 2");
    CHECK(code_of([&] { (void)blocks.split(0); }) == "RT-D69");
}

TEST_CASE("Stages.train_test_split_leaves_no_row_out") {
    const auto [train, test] = numbers(0, 10).train_test_split(0.25);
    CHECK(rows_of(train) == range(0, 7));
    CHECK(rows_of(test) == range(7, 10));
    const auto [mixed, rest] = numbers(0, 100).train_test_split(0.3, 5);
    auto all = rows_of(mixed);
    CHECK(all != range(0, 70));
    const auto others = rows_of(rest);
    CHECK(others.size() == 30);
    all.insert(all.end(), others.begin(), others.end());
    std::ranges::sort(all);
    CHECK(all == range(0, 100));
    CHECK(code_of([] { (void)numbers(0, 1).train_test_split(1.5); }) == "RT-D69");
}

TEST_CASE("Stages.union_stands_in_order") {
    const Dataset all = in_blocks({2, 3}).union_with({in_blocks({0, 1}), in_blocks({2})});
    CHECK(rows_of(all) == std::vector<std::int64_t>{0, 1, 2, 3, 4, 0, 0, 1});
    CHECK(rows_of_blocks(all) == rows_of(all));
    CHECK(x_of(all.rows(torch::tensor({7, 4, 5, 4}, torch::kLong))) ==
          std::vector<std::int64_t>{1, 4, 0, 4});
    const Dataset rows = numbers(0, 2).union_with({in_blocks({1})});
    CHECK(rows_of(rows) == std::vector<std::int64_t>{0, 1, 0});
    CHECK_FALSE(rows.blocks());
    CHECK(
        code_of([] {
            (void)numbers(0, 1).union_with({data::from_tensors({{"y", torch::arange(1)}})}).take(2);
        }) == "RT-D19");
}

TEST_CASE("Stages.columns_of_different_types_are_not_joined") {
    const auto of = [](const at::Tensor& y) { return data::from_tensors({{"y", y}}); };
    const Dataset whole = of(torch::arange(3));
    for (const at::Tensor& other : {torch::tensor({0.5F}), torch::tensor({1}, torch::kInt),
                                    torch::zeros({1, 2}).to(torch::kLong), torch::tensor({true})}) {
        const Dataset rest = of(other);
        const auto code = [&](const Dataset& joined) {
            return code_of([&] { (void)joined.rows(torch::tensor({0}, torch::kLong)); });
        };
        CHECK(code(whole.union_with({rest})) == "RT-D19"); // whatever rows a batch has
        CHECK(code(rest.union_with({whole, whole})) == "RT-D19");
        CHECK(code(data::mix({{whole, 0.5}, {rest, 0.5}})) == "RT-D19");
        CHECK(code_of([&] {
                  (void)whole
                      .map([&](Batch row) {
                          return row["y"].item<std::int64_t>() == 1 ? Batch({{"y", other}}) : row;
                      })
                      .take(3);
              }) == "RT-D19");
        CHECK(code_of([&] {
                  (void)whole
                      .flat_map([&](Batch row) {
                          return row["y"].item<std::int64_t>() == 1 ? Batch({{"y", other}}) : row;
                      })
                      .take(3);
              }) == "RT-D19");
    }
    CHECK(test::contains(
        test::message_of([&] { (void)whole.union_with({of(torch::tensor({0.5F}))}).take(1); }),
        "column \"y\" is Long in some rows and Float in others; convert one of them with "
        "map_batches()"));
    CHECK(whole.union_with({of(torch::tensor({7}))}).take(4)["y"].sum().item<std::int64_t>() == 10);
}

TEST_CASE("Stages.zip_puts_columns_side_by_side") {
    const auto y = data::from_tensors({{"y", torch::arange(5) * 10}});
    for (const Dataset& x : {numbers(0, 5), in_blocks({2, 3})}) {
        const Batch row = x.zip(y).rows(torch::tensor({3}, torch::kLong));
        CHECK(row["x"].item<std::int64_t>() == 3);
        CHECK(row["y"].item<std::int64_t>() == 30);
    }
    CHECK(rows_of_blocks(in_blocks({2, 3}).zip(y)) == range(0, 5));
    CHECK(code_of([&] { (void)numbers(0, 4).zip(y).size(); }) == "RT-D66");
    CHECK(code_of([&] { (void)y.zip(y).take(1); }) == "RT-D67");
}

TEST_CASE("Stages.mix_keeps_its_weights_in_every_thousand_rows") {
    const Dataset mixed = data::mix(
        {{numbers(0, 5000), 0.7}, {numbers(10'000, 5000), 0.2}, {numbers(20'000, 500), 0.1}});
    CHECK(mixed.size() >= 5000); // the last has 100 rows in each thousand
    CHECK(mixed.size() < 5010);
    const auto rows = rows_of(mixed);
    for (const std::size_t begin :
         {0UL, 1UL, 137UL, 2500UL, 4000UL}) { // any thousand, not only the first
        std::vector<std::int64_t> counts(3);
        for (std::size_t i = begin; i < begin + 1000; ++i) {
            ++counts[static_cast<std::size_t>(rows[i] / 10'000)];
        }
        CHECK(counts == std::vector<std::int64_t>{700, 200, 100});
    }
    std::vector<std::int64_t> first; // each in its order
    std::ranges::copy_if(rows, std::back_inserter(first), [](auto x) { return x < 10'000; });
    CHECK(first == range(0, static_cast<std::int64_t>(first.size())));
    const auto mix_by = [](double weight) {
        return data::mix({{numbers(0, 9), 1.0}, {numbers(0, 9), weight}}).size();
    };
    CHECK(mix_by(1.0) == 18);
    CHECK(code_of([&] { (void)mix_by(0.0); }) == "RT-D68");
    CHECK(code_of([&] { (void)mix_by(1e-6); }) == "RT-D68");
    CHECK(code_of([&] { (void)mix_by(std::nan("")); }) == "RT-D68");
    CHECK(rows_of_blocks(data::mix({{in_blocks({6, 6}), 1.0}, {in_blocks({12}), 3.0}})).size() ==
          16);
}

TEST_CASE("Stages.repartition_gives_blocks_of_equal_size") {
    for (const Dataset& dataset : {numbers(0, 10), in_blocks({1, 9})}) {
        const Dataset even = dataset.repartition(4);
        const auto index = even.blocks();
        REQUIRE(index);
        CHECK(index->ends() == std::vector<std::int64_t>{2, 5, 7, 10});
        CHECK(rows_of_blocks(even) == range(0, 10));
    }
    CHECK(numbers(0, 2).repartition(5).blocks()->size() == 5);
    CHECK(rows_of_blocks(numbers(0, 2).repartition(5)) == range(0, 2));
}

TEST_CASE("Stages.columns_are_selected_and_described") {
    const Dataset dataset = data::from_tensors(
        {{"x", torch::arange(4)}, {"image", torch::zeros({4, 3, 2})}, {"y", torch::ones(4)}});
    const auto schema = dataset.select_columns({"image", "x"}).schema();
    REQUIRE(schema.size() == 2);
    CHECK(schema[0].name == "x"); // in the order of the batch
    CHECK(schema[1].name == "image");
    CHECK((schema[1].type == torch::kFloat));
    CHECK(schema[1].shape == std::vector<std::int64_t>{3, 2});
    CHECK(code_of([&] { (void)dataset.select_columns({"z"}).take(1); }) == "RT-D2");
}

TEST_CASE("Stages.nothing_is_opened_before_it_is_read") {
    int opened = 0;
    const Dataset source = data::lazy([&opened] {
        ++opened;
        return numbers(0, 6);
    });
    const Dataset staged =
        data::mix({{source.map_batches(doubled).limit(4).union_with({source}), 1.0},
                   {source.zip(source.select_columns({"x"})), 1.0}})
            .repartition(2)
            .split(2)[0];
    CHECK(opened == 0);
    CHECK(staged.size() > 0);
    CHECK(opened == 1); // and all stages share what was opened
}

TEST_CASE("Stages.shuffle_is_one_other_order") {
    const Dataset shuffled = in_blocks({50, 0, 50}).shuffle(3);
    auto rows = rows_of(shuffled);
    CHECK(rows != range(0, 100));
    CHECK(rows == rows_of(numbers(0, 100).shuffle(3)));
    CHECK(rows != rows_of(numbers(0, 100).shuffle(4)));
    std::ranges::sort(rows);
    CHECK(rows == range(0, 100));
    CHECK(!shuffled.blocks());
    CHECK(numbers(0, 0).shuffle(1).size() == 0);
}

namespace {

/// Row i has i values: i * 100, i * 100 + 1 and so on.
Dataset sentences(std::vector<std::int64_t> blocks) {
    return in_blocks(std::move(blocks)).map_batches([](const Batch& batch) {
        std::vector<std::int64_t> values;
        std::vector<std::int64_t> offsets{0};
        for (const std::int64_t row : x_of(batch)) {
            for (std::int64_t i = 0; i < row; ++i) {
                values.push_back(row * 100 + i);
            }
            offsets.push_back(static_cast<std::int64_t>(values.size()));
        }
        const at::Tensor mask = batch["x"] % 2 == 0;
        return Batch({{"x", batch["x"]}},
                     {{"token", {torch::tensor(values, torch::kLong), torch::tensor(offsets)}}},
                     {{"x", mask}});
    });
}

bool are_equal(const Batch& left, const Batch& right) {
    bool equal = left["x"].equal(right["x"]) && left.valid("x").equal(right.valid("x"));
    for (std::int64_t row = 0; equal && row < left.size(); ++row) {
        equal = left.ragged("token")[row].equal(right.ragged("token")[row]);
    }
    return equal && left.size() == right.size();
}

} // namespace

TEST_CASE("Stages.pack_makes_rows_of_one_length") {
    // Values of the blocks: 100 | 200 201 300 301 302 | 400 401 402 403 500 ... 504, and no others.
    const Dataset packed = sentences({2, 2, 0, 2}).pack(3, "token");
    CHECK(packed.size() == 4);
    const std::vector<std::int64_t> expected{200, 201, 300, 400, 401, 402,
                                             403, 500, 501, 502, 503, 504};
    CHECK(packed.take()["token"].equal(torch::tensor(expected).view({4, 3})));
    CHECK(packed.blocks()->size() == 4);
    CHECK(packed.blocks()->rows_of(1) == 1);
    const Dataset kept = sentences({3, 3}).filter(
        [](const Batch& row) { return row["x"].item<std::int64_t>() != 4; });
    CHECK(kept.pack(2, "token").size() == 1 + 4); // of 100 200 201 | 300 301 302 500 ... 504

    CHECK(code_of([&] { (void)sentences({2}).pack(0, "token"); }) == "RT-D69");
    CHECK(code_of([&] { (void)sentences({2}).pack(2, "x").size(); }) == "RT-D2");
    const Dataset pairs = sentences({3}).map_batches([](const Batch& batch) {
        const auto& [values, offsets] = batch.ragged("token");
        return Batch({}, {{"token", {torch::stack({values, values}, 1), offsets}}});
    });
    CHECK(code_of([&] { (void)pairs.pack(2, "token").size(); }) == "RT-D63");
}

TEST_CASE("Stages.materialize_makes_rows_once") {
    const test::Directory directory("materialized");
    const auto kept_in = directory.path() / "of/numbers";
    std::atomic<int> calls = 0;
    const Dataset made = sentences({3, 0, 4}).map_batches([&](Batch batch) {
        ++calls;
        batch["x"] *= 2;
        return batch;
    });
    const auto open = [&] { return made.materialize(kept_in); };
    CHECK(!std::filesystem::exists(kept_in)); // before anything is read
    const Batch expected = made.take();
    calls = 0;
    {
        std::vector<std::jthread> ranks;
        for (int i = 0; i < 3; ++i) {
            ranks.emplace_back([&] { CHECK(are_equal(open().take(), expected)); });
        }
    }
    CHECK(calls == 2); // once a block that has rows
    const Dataset again = open();
    CHECK(again.size() == 7);
    CHECK(are_equal(again.rows(torch::tensor({6, 0, 3}, torch::kLong)),
                    made.rows(torch::tensor({6, 0, 3}, torch::kLong))));
    CHECK(rows_of_blocks(again) == std::vector<std::int64_t>{0, 2, 4, 6, 8, 10, 12});
    // Who changes a batch changes nothing that was kept.
    const Dataset more = again.map_batches([](Batch batch) {
        batch["x"].add_(1);
        return batch;
    });
    CHECK(rows_of_blocks(more) == std::vector<std::int64_t>{1, 3, 5, 7, 9, 11, 13});
    CHECK(rows_of_blocks(more) == std::vector<std::int64_t>{1, 3, 5, 7, 9, 11, 13});
    CHECK(rows_of(again) == std::vector<std::int64_t>{0, 2, 4, 6, 8, 10, 12});
    CHECK(code_of([&] { (void)made.materialize(kept_in, "2").size(); }) == "RT-D52");
    CHECK(code_of([&] { (void)sentences({3, 1}).materialize(kept_in).size(); }) == "RT-D52");

    for (const auto& file : std::filesystem::directory_iterator(kept_in)) {
        CHECK(file.path().extension() == ".safetensors");
        std::filesystem::resize_file(file.path(), file.file_size() - 1);
        CHECK(test::contains(test::message_of([&] { (void)open().size(); }), "RT-D54"));
        CHECK(test::contains(test::message_of([&] { (void)open().size(); }),
                             file.path().filename().string()));
        std::filesystem::remove(file.path());
    }
    CHECK(are_equal(open().take(), expected));
}

TEST_CASE("Stages.materialize_counts_what_filter_leaves") {
    const test::Directory directory("filtered");
    const auto odd = in_blocks({5, 5}).filter(
        [](const Batch& batch) -> at::Tensor { return batch["x"] % 2 == 1; });
    const Dataset kept = odd.materialize(directory.path() / "odd");
    CHECK(kept.size() == 5);
    CHECK(rows_of(kept) == std::vector<std::int64_t>{1, 3, 5, 7, 9});
    const auto none = in_blocks({5}).filter([](const Batch&) { return false; });
    CHECK(none.materialize(directory.path() / "none").size() == 0);

    // A function that fails leaves nothing behind that is taken for rows.
    bool fails = true;
    const Dataset failing = in_blocks({5}).map_batches(
        [&](Batch batch) { return fails ? throw std::runtime_error("not now") : batch; });
    const auto open = [&] { return failing.materialize(directory.path() / "failing"); };
    CHECK_THROWS_AS((void)open().size(), std::runtime_error);
    fails = false;
    CHECK(rows_of(open()) == range(0, 5));
}

TEST_CASE("Stages.materialize_refuses_memory") {
    const std::filesystem::path memory = "/dev/shm";
    struct statfs status = {};
    if (::statfs(memory.c_str(), &status) == 0 && status.f_type == 0x01021994) {
        const auto directory = memory / ("rtrain-test-" + std::to_string(::getpid()));
        CHECK(code_of([&] { (void)in_blocks({5}).materialize(directory).size(); }) == "RT-D53");
        std::filesystem::remove_all(directory);
    }
}
