// SPDX-License-Identifier: Apache-2.0
#include "../support.hpp"

#include <rtrain/data/batch/each_tensor.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/order/permuted.hpp>
#include <rtrain/data/order/sampler.hpp>
#include <rtrain/data/order/sharded.hpp>
#include <rtrain/data/order/streaming.hpp>
#include <rtrain/data/readers/idx.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/model/ddp/batch_weight.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/status/step_clock.hpp>

#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <type_traits>

using namespace rtrain;
using test::code_of;

TEST_CASE("Sampler.equals_python") {
    const auto cases =
        json::parse(test::read(std::filesystem::path(RTRAIN_TEST_DATA) / "sampler/python.json"));
    REQUIRE(cases.as_array().size() > 500);
    for (const auto& item : cases.as_array()) {
        const auto& expected = item.as_object();
        CAPTURE(json::serialize(item));
        const auto order = data::distributed_order({
            .rows = expected.at("rows").as_int64(),
            .rank = expected.at("rank").to_number<int>(),
            .size = expected.at("size").to_number<int>(),
            .epoch = expected.at("epoch").as_int64(),
            .shuffle = expected.at("shuffle").as_bool(),
            .seed = expected.at("seed").to_number<std::uint64_t>(),
            .drop_last = expected.at("drop_last").as_bool(),
        });
        const auto python = boost::json::value_to<std::vector<std::int64_t>>(expected.at("order"));
        CHECK(std::vector<std::int64_t>(order.data_ptr<std::int64_t>(),
                                        order.data_ptr<std::int64_t>() + order.numel()) == python);
    }
    CHECK(code_of([] { (void)data::distributed_order({.rows = 0}); }) == "RT-D7");
}

TEST_CASE("Dataset.from_tensors") {
    const auto x = torch::arange(10).unsqueeze(1);
    const auto points = data::from_tensors({{"x", x}, {"y", 2 * x}});
    CHECK(points.size() == 10);
    const auto batch = points.rows(torch::tensor({7, 0}, torch::kLong));
    CHECK(batch.size() == 2);
    CHECK(batch["y"].equal(torch::tensor({{14}, {0}}, torch::kLong)));
    CHECK(code_of([&] { (void)batch["z"]; }) == "RT-D2");
    CHECK(test::contains(test::message_of([&] { (void)batch["z"]; }), "\"x\", \"y\""));
    CHECK(code_of([&] { (void)data::from_tensors({{"x", x}, {"y", x.slice(0, 1)}}); }) == "RT-D6");
    CHECK(code_of([] { (void)data::from_tensors({}); }) == "RT-D6");
}

TEST_CASE("Dataset.fashion_mnist_is_complete") {
    const auto train = data::fashion_mnist(test::fashion_mnist_files, data::Split::train);
    const auto test_rows = data::fashion_mnist(test::fashion_mnist_files, data::Split::test);
    CHECK(train.size() == 60000);
    CHECK(test_rows.size() == 10000);
    const auto first = train.rows(torch::arange(4));
    CHECK(first["image"].sizes() == torch::IntArrayRef{4, 1, 28, 28});
    CHECK(first["image"].min().item<float>() == 0);
    CHECK(first["image"].max().item<float>() == 1);
    CHECK(first["label"].equal(torch::tensor({9, 0, 0, 3}, torch::kLong)));
}

namespace {

void write_packed(const std::filesystem::path& path, const std::string& text) {
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
}

} // namespace

TEST_CASE("Idx.bad_files_are_errors") {
    const test::Directory directory("idx");
    const auto images = directory.path() / "train-images-idx3-ubyte";
    const auto labels = directory.path() / "train-labels-idx1-ubyte";
    const std::string good_images =
        std::string("\0\0\x08\x03\0\0\0\2\0\0\0\2\0\0\0\2", 16) + "abcdefgh";
    const std::string good_labels = std::string("\0\0\x08\x01\0\0\0\2", 8) + "\1\2";
    const auto open = [&] {
        return data::fashion_mnist(directory.path(), data::Split::train).rows(torch::arange(2));
    };
    CHECK(code_of(open) == "RT-D3");
    test::write(images, good_images);
    test::write(labels, good_labels);
    CHECK(open()["label"].equal(torch::tensor({1, 2}, torch::kLong)));
    CHECK(open()["image"][1][0][1][1].item<float>() == doctest::Approx('h' / 255.0));

    test::write(images, good_images.substr(0, 20));
    CHECK(code_of(open) == "RT-D5");
    test::write(images, good_images.substr(0, 9));
    CHECK(code_of(open) == "RT-D5");
    test::write(images, good_images + "x");
    CHECK(code_of(open) == "RT-D5");
    test::write(images, "\0\0\x0d\x03" + good_images.substr(4));
    CHECK(code_of(open) == "RT-D4");
    test::write(images, good_labels);
    CHECK(code_of(open) == "RT-D4");
    test::write(images, "");
    CHECK(code_of(open) == "RT-D4");
    // A header that asks for 2^96 bytes is refused before memory is.
    test::write(images, std::string("\0\0\x08\x03", 4) + std::string(12, '\xff') + "abc");
    CHECK(code_of(open) == "RT-D5");
    test::write(images, good_images);
    test::write(labels, std::string("\0\0\x08\x01\0\0\0\1", 8) + "\1");
    CHECK(code_of(open) == "RT-D6");

    std::filesystem::remove(images);
    test::write(labels, good_labels);
    const auto packed = directory.path() / "train-images-idx3-ubyte.gz";
    write_packed(packed, good_images);
    CHECK(open()["image"].sizes() == torch::IntArrayRef{2, 1, 2, 2});
    const std::string bytes = test::read(packed);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        CAPTURE(length);
        test::write(packed, bytes.substr(0, length));
        const std::string code = code_of(open);
        CHECK((code == "RT-D4" || code == "RT-D5"));
    }
    // gzip in two members, whose trailer tells nothing about the first
    write_packed(packed, good_images.substr(0, 18));
    const std::string head = test::read(packed);
    write_packed(packed, good_images.substr(18));
    test::write(packed, head + test::read(packed));
    CHECK(open()["image"].sizes() == torch::IntArrayRef{2, 1, 2, 2});
}

namespace {

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

data::Batches batches_of(int rank, int size, data::BatchOptions options,
                         std::shared_ptr<data::Position> position) {
    return {{data::from_tensors({{"x", torch::arange(10)}}), data::Sharded{}, rank, size},
            options,
            std::move(position)};
}

} // namespace

TEST_CASE("Batches.cover_the_shard") {
    auto batches = batches_of(1, 2, {.size = 2}, std::make_shared<data::Position>());
    CHECK(pass(batches) == std::vector<std::vector<std::int64_t>>{{1, 3}, {5, 7}, {9}});
    CHECK(batches.size() == 3);
    auto whole =
        batches_of(1, 2, {.size = 2, .drop_last = true}, std::make_shared<data::Position>());
    CHECK(pass(whole) == std::vector<std::vector<std::int64_t>>{{1, 3}, {5, 7}});
    CHECK(whole.size() == 2);
    CHECK(code_of([] {
              (void)batches_of(0, 1, {.size = 0}, std::make_shared<data::Position>());
          }) == "RT-D8");
}

TEST_CASE("Batches.each_pass_is_an_epoch") {
    auto batches = batches_of(0, 1, {.size = 10, .shuffle = true, .seed = 3},
                              std::make_shared<data::Position>());
    const auto first = pass(batches);
    const auto second = pass(batches);
    CHECK(first != second);
    CHECK(batches.epoch() == 2);
    batches.set_epoch(0);
    CHECK(pass(batches) == first);
    for (auto& batch : batches) {
        (void)batch;
        CHECK(code_of([&] { (void)batches.begin(); }) == "RT-D9");
        break; // leaves the epoch: the next pass is another one
    }
    CHECK(batches.epoch() == 2);
}

TEST_CASE("Batches.go_on_within_an_epoch") {
    const data::BatchOptions options{.size = 3, .shuffle = true};
    auto whole = batches_of(0, 1, options, std::make_shared<data::Position>());
    const auto first = pass(whole);
    const auto second = pass(whole);
    for (std::size_t taken = 0; taken <= first.size(); ++taken) {
        CAPTURE(taken);
        auto position = std::make_shared<data::Position>();
        auto batches = batches_of(0, 1, options, position);
        data::Position saved;
        std::size_t count = 0;
        for (auto& batch : batches) {
            (void)batch;
            if (++count == taken) {
                saved = {position->epoch, position->samples};
                break;
            }
        }
        auto resumed = batches_of(0, 1, options, std::make_shared<data::Position>(saved));
        const auto rest = pass(resumed);
        CHECK(rest ==
              decltype(first)(first.begin() + static_cast<std::ptrdiff_t>(taken), first.end()));
        CHECK(pass(resumed) == second);
    }
}

namespace {

/// Rows whose numbers are multiples of 5, in any batch; of the others it has nothing.
class Fives : public data::Dataset::Source {
public:
    [[nodiscard]] std::int64_t size() const override { return 12; }
    [[nodiscard]] data::Batch rows(const at::Tensor& indices) const override {
        return data::Batch({{"x", indices.masked_select(indices.remainder(5) == 0)}});
    }
};

} // namespace

TEST_CASE("Batches.without_rows_do_not_end_the_epoch") {
    auto position = std::make_shared<data::Position>();
    const data::Dataset fives(std::make_shared<Fives>());
    const auto batches_at = [&](const auto& place) {
        return data::Batches({.dataset = fives, .policy = data::Sharded{}}, {.size = 2}, place);
    };
    auto batches = batches_at(position);
    CHECK(pass(batches) == std::vector<std::vector<std::int64_t>>{{0}, {}, {5}, {}, {}, {10}});
    CHECK(batches.epoch() == 1);
    // A run goes on behind an empty batch as behind any other.
    std::vector<std::int64_t> places;
    for (auto& batch : batches) {
        places.push_back(position->samples);
        if (places.size() == 4) {
            CHECK(batch.size() == 0);
            break;
        }
    }
    CHECK(places == std::vector<std::int64_t>{2, 4, 6, 8});
    auto rest = batches_at(std::make_shared<data::Position>(data::Position{1, places.back()}));
    CHECK(pass(rest) == std::vector<std::vector<std::int64_t>>{{}, {10}});
}

namespace {

/// Blocks of rows that are their own numbers, and how often each was read.
class Counted : public data::Dataset::BlockSource {
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
    [[nodiscard]] data::Batch read(std::int64_t block) const override {
        const auto end = rows_.begin() + block;
        const auto begin = std::accumulate(rows_.begin(), end, std::int64_t{0});
        ++reads.at(static_cast<std::size_t>(block));
        const auto x = torch::arange(begin, begin + *end + surplus);
        return data::Batch({{"x", x}, {"pair", torch::stack({x, -x}, 1)}});
    }
    mutable std::vector<int> reads;
    std::int64_t surplus = 0;

private:
    std::vector<std::int64_t> rows_;
};

} // namespace

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
                CHECK(pass(by_block) == pass(by_row)); // and the epoch behind it
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

namespace {

/// Text, a list and numbers, the second row without a number.
data::Batch three_rows() {
    const auto offsets = torch::tensor({0, 3, 3, 5}, torch::kLong);
    return {{{"x", torch::tensor({7, 0, 9}, torch::kLong)}},
            {{"text", {torch::tensor({'o', 'n', 'e', 'h', 'i'}, torch::kByte), offsets}},
             {"list", {torch::arange(10).reshape({5, 2}), offsets}}},
            {{"x", torch::tensor({true, false, true})}}};
}

} // namespace

TEST_CASE("Batch.names_the_columns_of_either_kind") {
    const data::Batch batch = three_rows();
    CHECK(batch.size() == 3);
    CHECK(batch.ragged("text").text(0) == "one");
    CHECK(batch.ragged("text").text(1).empty());
    CHECK(batch.ragged("list")[2].equal(torch::tensor({{6, 7}, {8, 9}}, torch::kLong)));
    CHECK_FALSE(batch.valid("text").defined());
    CHECK(test::message_of([&] { (void)batch["text"]; }) ==
          "the batch has no column \"text\"; it has \"x\"; with batch.ragged(): \"text\", \"list\" "
          "[RT-D2]");
    CHECK(code_of([&] { (void)batch.ragged("x"); }) == "RT-D2");
    CHECK(code_of([&] { (void)batch.valid("y"); }) == "RT-D2");
}

TEST_CASE("Batch.rows_are_selected_sliced_and_joined") {
    const data::Batch batch = three_rows();
    const data::Batch selected = data::select_rows(batch, torch::tensor({2, 2, 1}, torch::kLong));
    CHECK(selected["x"].equal(torch::tensor({9, 9, 0}, torch::kLong)));
    CHECK(selected.ragged("text").text(1) == "hi");
    CHECK(selected.ragged("text").text(2).empty());
    CHECK(selected.ragged("list")[0].equal(torch::tensor({{6, 7}, {8, 9}}, torch::kLong)));
    CHECK(selected.valid("x").equal(torch::tensor({true, true, false})));

    const data::Batch sliced = data::slice_rows(batch, 1, 3);
    CHECK(sliced.size() == 2);
    CHECK(sliced.ragged("text").text(1) == "hi");

    const data::Batch unmasked({{"x", torch::tensor({4}, torch::kLong)}},
                               {{"text", batch.ragged("text")}, {"list", batch.ragged("list")}});
    const data::Batch joined = data::concatenate({sliced, data::slice_rows(batch, 0, 1)});
    CHECK(joined["x"].equal(torch::tensor({0, 9, 7}, torch::kLong)));
    CHECK(joined.ragged("text").text(2) == "one");
    CHECK(joined.ragged("list")[1].equal(torch::tensor({{6, 7}, {8, 9}}, torch::kLong)));
    CHECK(
        data::concatenate({sliced, unmasked}).valid("x").equal(torch::tensor({false, true, true})));
    CHECK(code_of([&] {
              (void)data::concatenate({batch, data::Batch({{"y", torch::arange(3)}})});
          }) == "RT-D19");
}

namespace {

/// What each rank gets in one pass over numbers, batch by batch.
template <class D>
std::vector<std::vector<std::vector<std::int64_t>>>
passes_of(const data::Dataset& dataset, int ranks, const data::BatchOptions& options) {
    std::vector<std::vector<std::vector<std::int64_t>>> of_ranks;
    for (int rank = 0; rank < ranks; ++rank) {
        data::Batches batches({.dataset = dataset, .policy = D{}, .rank = rank, .size = ranks},
                              options, std::make_shared<data::Position>());
        of_ranks.push_back(pass(batches));
        CHECK(batches.size() == std::ssize(of_ranks.back()));
    }
    return of_ranks;
}

std::vector<std::int64_t>
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
void check_equal_batches(const std::vector<std::vector<std::vector<std::int64_t>>>& of_ranks,
                         std::int64_t rows) {
    for (const auto& batches : of_ranks) {
        CHECK((rows < std::ssize(of_ranks) || batches.size() == of_ranks.front().size()));
        CHECK(std::ranges::none_of(batches, [](const auto& batch) { return batch.empty(); }));
    }
}

} // namespace

TEST_CASE_TEMPLATE("Batches.an_evaluation_reads_each_row_once", D, data::Sharded, data::Permuted,
                   data::Streaming) {
    for (const std::int64_t rows : {1, 2, 3, 9, 10, 13}) {
        std::vector<std::int64_t> each(static_cast<std::size_t>(rows));
        std::iota(each.begin(), each.end(), 0);
        const auto in_memory = data::from_tensors({{"x", torch::arange(rows)}});
        const auto in_blocks = data::from_blocks(std::make_shared<Counted>(
            std::vector<std::int64_t>(static_cast<std::size_t>(rows), 1)));
        for (const int ranks : {1, 2, 3, 4, 7}) {
            for (const std::int64_t size : {1, 2, 3, 256}) {
                for (const bool shuffle : {false, true}) {
                    CAPTURE(rows);
                    CAPTURE(ranks);
                    CAPTURE(size);
                    data::BatchOptions options{.size = size, .shuffle = shuffle};
                    for (const auto& dataset : {in_memory, in_blocks}) {
                        const torch::NoGradGuard guard;
                        const auto evaluated = passes_of<D>(dataset, ranks, options);
                        CHECK(sorted(evaluated) == each);
                        check_equal_batches(evaluated, rows);
                    }
                    options.each_row_once = true;
                    CHECK(sorted(passes_of<D>(in_memory, ranks, options)) == each);
                    options.each_row_once = false;
                    const torch::NoGradGuard guard;
                    const auto trained = passes_of<D>(in_memory, ranks, options);
                    CHECK(std::ranges::none_of(trained, [](auto& of) { return of.empty(); }));
                }
            }
        }
    }
    // With drop_last, what fills no batch is left out, as in training.
    const torch::NoGradGuard guard;
    CHECK(sorted(passes_of<D>(data::from_tensors({{"x", torch::arange(10)}}), 4,
                              {.size = 2, .drop_last = true})) ==
          std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("Batches.of_different_sizes_have_weights") {
    const std::vector<NamedParameter> none;
    for (const int rank : {0, 1}) {
        rtrain::detail::BatchWeight weight(none);
        data::Batches batches({.dataset = data::from_tensors({{"x", torch::arange(11)}}),
                               .policy = data::Sharded{},
                               .rank = rank,
                               .size = 2},
                              {.size = 4, .each_row_once = true},
                              std::make_shared<data::Position>());
        std::vector<double> weights;
        for (auto& batch : batches) { // of 4 and 4 rows, then 2 and 1
            CHECK(batch.size() == (weights.empty() ? 4 : 2 - rank));
            std::thread([&] { weight.follow(true); }).join(); // as CUDA's backward
            weights.push_back(weight.value());
        }
        CHECK(weights == std::vector{1.0, rank == 0 ? 4.0 / 3 : 2.0 / 3});
    }
}

TEST_CASE("Batches.an_evaluation_goes_on_on_other_ranks") {
    const torch::NoGradGuard guard;
    for (const std::int64_t taken : {2, 4, 6, 8}) {
        std::vector<std::int64_t> rest;
        for (int rank = 0; rank < 3; ++rank) {
            auto batches = batches_of(rank, 3, {.size = 1},
                                      std::make_shared<data::Position>(data::Position{0, taken}));
            for (const auto& batch : pass(batches)) {
                rest.insert(rest.end(), batch.begin(), batch.end());
            }
        }
        std::ranges::sort(rest);
        CHECK(std::ssize(rest) == 10 - taken);
        CHECK(rest.front() == taken);
    }
}

TEST_CASE("Batches.replicated_reads_everything") {
    auto position = std::make_shared<data::Position>();
    data::Batches batches({.dataset = data::from_tensors({{"x", torch::arange(5)}}),
                           .policy = data::Replicated{},
                           .rank = 2,
                           .size = 3},
                          {.size = 4}, position);
    CHECK(pass(batches) == std::vector<std::vector<std::int64_t>>{{0, 1, 2, 3}, {4}});
}

namespace {

/// torch::data's own way to make a data set.
struct Squares : torch::data::Dataset<Squares> {
    torch::data::Example<> get(std::size_t index) override {
        const auto x = torch::tensor(static_cast<std::int64_t>(index));
        return {x, x * x};
    }
    [[nodiscard]] std::optional<std::size_t> size() const override { return 11; }
};

} // namespace

TEST_CASE("TorchData.dataset_becomes_columns") {
    const auto squares = data::from_dataset(Squares{});
    CHECK(squares.size() == 11);
    CHECK(squares.rows(torch::tensor({3, 2}, torch::kLong))["target"].equal(
        torch::tensor({9, 4}, torch::kLong)));
}

TEST_CASE("TorchData.loader_gets_a_distributed_sampler") {
    const auto rows_of = [](auto& loader) {
        std::vector<std::int64_t> rows;
        for (auto& batch : loader) {
            for (const auto& row : batch.data.unbind()) {
                rows.push_back(row.template item<std::int64_t>());
            }
        }
        return rows;
    };
    const auto dataset = [] { return Squares{}.map(torch::data::transforms::Stack<>()); };
    auto ordered = data::distribute_loader(
        torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(dataset(), 2),
        {.epoch = {.rank = 1, .size = 3}, .position = std::make_shared<data::Position>()});
    CHECK(rows_of(ordered) == std::vector<std::int64_t>{1, 4, 7, 10});
    CHECK(rows_of(ordered) == std::vector<std::int64_t>{1, 4, 7, 10});

    auto shuffled = data::distribute_loader(
        torch::data::make_data_loader<torch::data::samplers::RandomSampler>(dataset(), 2),
        {.epoch = {.rank = 0, .size = 2, .seed = 5},
         .position = std::make_shared<data::Position>()});
    const auto first = rows_of(shuffled);
    const auto second = rows_of(shuffled);
    const auto expected = data::distributed_order(
        {.rows = 11, .rank = 0, .size = 2, .epoch = 1, .shuffle = true, .seed = 5});
    CHECK(first != second);
    CHECK(torch::tensor(second).equal(expected));

    auto threaded = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
        dataset(), torch::data::DataLoaderOptions(2).workers(1));
    CHECK(code_of([&] {
              (void)data::distribute_loader(
                  std::move(threaded),
                  {.epoch = {.size = 2}, .position = std::make_shared<data::Position>()});
          }) == "RT-D11");
    auto made = data::make_distributed_loader(
        dataset(), torch::data::DataLoaderOptions(2).workers(1),
        {.epoch = {.rank = 1, .size = 2}, .position = std::make_shared<data::Position>()});
    CHECK(rows_of(made) == std::vector<std::int64_t>{1, 3, 5, 7, 9, 0});

    // It goes on behind the rows that all ranks have taken.
    auto resumed = data::make_distributed_loader(
        dataset(), torch::data::DataLoaderOptions(2),
        {.epoch = {.rank = 1, .size = 2},
         .position = std::make_shared<data::Position>(data::Position{0, 8})});
    CHECK(rows_of(resumed) == std::vector<std::int64_t>{9, 0});
    CHECK(rows_of(resumed) == std::vector<std::int64_t>{1, 3, 5, 7, 9, 0});
}

TEST_CASE("TorchData.an_evaluation_reads_each_row_once") {
    using torch::data::samplers::SequentialSampler;
    const auto dataset = [] { return Squares{}.map(torch::data::transforms::Stack<>()); };
    for (const int ranks : {1, 2, 3, 4, 13}) {
        for (const std::size_t size : {1U, 2U, 5U, 256U}) {
            CAPTURE(ranks);
            CAPTURE(size);
            std::vector<std::vector<std::vector<std::int64_t>>> evaluated;
            std::size_t trained = 0;
            for (int rank = 0; rank < ranks; ++rank) {
                auto loader = data::distribute_loader(
                    torch::data::make_data_loader<SequentialSampler>(dataset(), size),
                    {.epoch = {.rank = rank, .size = ranks},
                     .position = std::make_shared<data::Position>()});
                const auto rows_of = [&] {
                    std::vector<std::vector<std::int64_t>> batches;
                    for (auto& batch : *loader) { // as of torch's pointer
                        const auto x = batch.data.contiguous();
                        batches.emplace_back(x.template data_ptr<std::int64_t>(),
                                             x.template data_ptr<std::int64_t>() + x.numel());
                    }
                    return batches;
                };
                {
                    const torch::NoGradGuard guard;
                    evaluated.push_back(rows_of());
                }
                for (const auto& batch : rows_of()) {
                    trained += batch.size();
                }
                CHECK(loader->options().batch_size == size);
            }
            CHECK(sorted(evaluated) == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
            check_equal_batches(evaluated, 11);
            const auto each =
                (11 + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks);
            CHECK(trained == each * static_cast<std::size_t>(ranks));
        }
    }
}

TEST_CASE("EachTensor.visits_batches_and_examples_whatever_holds_them") {
    const auto tensors_in = [](auto value) {
        int count = 0;
        rtrain::detail::each_tensor(value, [&](torch::Tensor&) { ++count; });
        return count;
    };
    using Example = torch::data::Example<>;
    const torch::Tensor x = torch::ones({2});
    CHECK(tensors_in(data::Batch({{"x", x}, {"y", x}})) == 2);
    CHECK(tensors_in(Example(x, x)) == 2);
    CHECK(tensors_in(std::vector<Example>{{x, x}, {x, x}}) == 4);
    CHECK(tensors_in(torch::data::TensorExample(x)) == 1);
    CHECK(tensors_in(std::pair(data::Batch({{"x", x}}), std::optional(x))) == 2);
    CHECK(tensors_in(std::vector<int>{1, 2}) == 0);
}

TEST_CASE("TorchData.time_and_rows_of_a_loader_count") {
    struct Slow : torch::data::Dataset<Slow> {
        torch::data::Example<> get(std::size_t index) override {
            CHECK((ProcessContext::current().clock.part() == StepPart::data));
            return {torch::tensor(static_cast<std::int64_t>(index)), torch::tensor(0)};
        }
        [[nodiscard]] std::optional<std::size_t> size() const override { return 7; }
    };
    auto stacked = data::make_distributed_loader(
        Slow{}.map(torch::data::transforms::Stack<>()), torch::data::DataLoaderOptions(2),
        {.epoch = {.size = 1}, .position = std::make_shared<data::Position>()});
    auto examples = data::make_distributed_loader(
        Slow{}, torch::data::DataLoaderOptions(2),
        {.epoch = {.size = 1}, .position = std::make_shared<data::Position>()});
    (void)ProcessContext::current().clock.take();
    const auto rows_of = [](auto& loader) {
        for (auto& batch : loader) {
            (void)batch;
            CHECK((ProcessContext::current().clock.part() == StepPart::optimizer));
        }
        return ProcessContext::current().clock.take().rows;
    };
    CHECK(rows_of(stacked) == 7);
    CHECK(rows_of(examples) == 7);
    const torch::NoGradGuard guard;
    CHECK(rows_of(stacked) == 0); // which trains nothing
}
