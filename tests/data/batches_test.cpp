// SPDX-License-Identifier: Apache-2.0
#include "passes.hpp"
#include "support/training.hpp"

#include <rtrain/data/batches.hpp>
#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/order/permuted.hpp>
#include <rtrain/data/order/sharded.hpp>
#include <rtrain/data/order/streaming.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/process/context.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

using namespace rtrain;
using test::check_equal_batches;
using test::code_of;
using test::Counted;
using test::pass;
using test::sorted;

namespace {

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
    // A run resumes after an empty batch as after any other.
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
