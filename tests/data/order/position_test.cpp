// SPDX-License-Identifier: Apache-2.0
// A pass over a data set that resumes where another one was, on any number of ranks. The ranks are
// objects in this process; tests/launch/position_test.cpp has real ones.
#include "support/training.hpp"

#include <rtrain/data/order/permuted.hpp>
#include <rtrain/data/order/sharded.hpp>
#include <rtrain/data/order/streaming.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/data/torch_data.hpp>
#include <rtrain/state/progress.hpp>
#include <rtrain/testing/data_policy.hpp>

#include <doctest/doctest.h>

#include <boost/json/parse.hpp>

#include <algorithm>
#include <map>
#include <string>

using namespace rtrain;
using test::code_of;
using test::contains;
using test::message_of;
using namespace rtrain::testing;

namespace {

/// torch::data's own way to make a data set.
struct Identity : torch::data::Dataset<Identity> {
    torch::data::Example<> get(std::size_t index) override {
        const auto x = torch::tensor(static_cast<std::int64_t>(index));
        return {x, x};
    }
    [[nodiscard]] std::optional<std::size_t> size() const override { return 103; }
};

} // namespace

RTRAIN_TEST_DATA_POLICY(Permuted, data::Permuted{});
RTRAIN_TEST_DATA_POLICY(Sharded, data::Sharded{});
RTRAIN_TEST_DATA_POLICY(Replicated, data::Replicated{});

TEST_CASE("Position.of_torch_loaders_counts_the_rows_of_a_short_batch") {
    const auto make_loader = [](int workers) {
        return [=](int rank, int size, const std::shared_ptr<data::Position>& position) {
            return data::make_distributed_loader(
                Identity{}.map(torch::data::transforms::Stack<>()),
                torch::data::DataLoaderOptions(4).workers(static_cast<std::size_t>(workers)),
                {.epoch = {.rank = rank, .size = size, .shuffle = true, .seed = 5},
                 .position = position});
        };
    };
    const auto data_of = [](auto& batch) { return batch.data; };
    resume_on_any(make_loader(0), data_of, true);
    data::Position whole;
    CHECK(counts_of(take(whole, 1, to_the_end, make_loader(0), data_of), 103) ==
          std::vector<int>(103, 1));

    // After the last batch of a rank, which is short, nothing is left on any number of ranks.
    for (const int resumed_on : {1, 2, 5}) {
        data::Position position;
        const auto taken = take(position, 2, 13, make_loader(0), data_of); // 52 rows each
        CHECK(taken.size() == 104);
        CHECK(position.epoch == 0);
        CHECK(position.samples == 104);
        CHECK(take(position, resumed_on, to_the_end, make_loader(0), data_of).empty());
        CHECK(position.epoch == 1);
    }
    data::Position position;
    auto taken = take(position, 2, 3, make_loader(1), data_of);
    const auto rest = take(position, 3, to_the_end, make_loader(1), data_of);
    taken.insert(taken.end(), rest.begin(), rest.end());
    const auto counts = counts_of(taken, 103);
    CHECK(std::count(counts.begin(), counts.end(), 0) == 0);
}

TEST_CASE("Position.with_drop_last_leaves_nothing_partial") {
    for (int saved_on = 1; saved_on <= 5; ++saved_on) {
        for (int resumed_on = 1; resumed_on <= 5; ++resumed_on) {
            const auto loops = loops_over<data::Permuted>(
                numbers(103), {.size = 4, .shuffle = true, .drop_last = true});
            data::Position position;
            auto taken = take(position, saved_on, 2, loops, column_x);
            const std::int64_t left = 103 - position.samples;
            const auto rest = take(position, resumed_on, to_the_end, loops, column_x);
            CHECK(static_cast<std::int64_t>(rest.size()) ==
                  left / (4 * resumed_on) * (4 * resumed_on));
            taken.insert(taken.end(), rest.begin(), rest.end());
            const auto counts = counts_of(taken, 103);
            CHECK(std::count(counts.begin(), counts.end(), 1) ==
                  static_cast<std::int64_t>(taken.size()));
        }
    }
}

TEST_CASE("Permuted.steps_do_not_depend_on_the_number_of_ranks") {
    // 24 rows a step; two ranks and twelve rows each give what one rank with 24 does.
    const auto dataset = numbers(24 * 4 + 12);
    std::vector<std::vector<std::int64_t>> of_size;
    for (const int size : {1, 2, 3, 4, 6, 8}) {
        const auto loops =
            loops_over<data::Permuted>(dataset, {.size = 24 / size, .shuffle = true, .seed = 1});
        data::Position position;
        of_size.push_back(take(position, size, to_the_end, loops, column_x));
        CHECK(of_size.back() == of_size.front());
        CHECK(loops(0, size, std::make_shared<data::Position>()).size() == 5);
    }
    // No shuffle: the rows as they are.
    data::Position position;
    const auto loops = loops_over<data::Permuted>(numbers(10), {.size = 2});
    CHECK(take(position, 2, to_the_end, loops, column_x) ==
          std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    CHECK(code_of([] {
              auto empty = loops_over<data::Permuted>(numbers(0),
                                                      {})(0, 1, std::make_shared<data::Position>());
              (void)empty.begin();
          }) == "RT-D7");
}

TEST_CASE("Permuted.gives_every_rank_a_batch_when_few_rows_are_left") {
    // 9 rows on 4 ranks, 2 each: the ninth goes into the only step.
    const auto pairs = loops_over<data::Permuted>(numbers(9), {.size = 2});
    data::Position position;
    CHECK(take(position, 4, to_the_end, pairs, column_x) ==
          std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(pairs(3, 4, std::make_shared<data::Position>()).size() == 1);
    // 3 rows on 4 ranks: one is repeated; with drop_last there is no batch.
    position = {};
    CHECK(take(position, 4, to_the_end, loops_over<data::Permuted>(numbers(3), {.size = 2}),
               column_x) == std::vector<std::int64_t>{0, 1, 2, 0});
    position = {};
    CHECK(take(position, 4, to_the_end,
               loops_over<data::Permuted>(numbers(3), {.size = 2, .drop_last = true}), column_x)
              .empty());
}

TEST_CASE("Permuted.makes_no_order_of_a_large_data_set") {
    /// 10^15 rows that are their own numbers.
    class Huge : public data::Dataset::Source {
    public:
        [[nodiscard]] std::int64_t size() const override { return 1'000'000'000'000'000; }
        [[nodiscard]] data::Batch rows(const at::Tensor& indices) const override {
            return data::Batch({{"x", indices}});
        }
    };
    const auto position = std::make_shared<data::Position>(data::Position{3, 999'999'999'999'000});
    data::Batches batches({.dataset = data::Dataset(std::make_shared<Huge>()),
                           .policy = data::Permuted{},
                           .rank = 1,
                           .size = 2},
                          {.size = 100, .shuffle = true}, position);
    CHECK(batches.size() == 5'000'000'000'000);
    std::vector<std::int64_t> rows;
    for (auto& batch : batches) {
        append(rows, batch["x"]);
    }
    CHECK(rows.size() == 500);
    const data::Permutation permutation(1'000'000'000'000'000, data::hash_of(0, 3));
    CHECK(rows.front() == permutation[999'999'999'999'100]);
    CHECK(rows.back() == permutation[999'999'999'999'999]);
    const data::Shard shard({.dataset = data::Dataset(std::make_shared<Huge>()),
                             .policy = data::Permuted{},
                             .rank = 1,
                             .size = 2},
                            [&] { return position; });
    CHECK(shard.size() == 500'000'000'000'000);
}

TEST_CASE("MicroBatches.are_consecutive_and_the_place_moves_by_steps") {
    const data::BatchOptions options{.size = 3, .micro_batches = 4};
    const auto position = std::make_shared<data::Position>();
    data::Batches batches(
        {.dataset = numbers(31), .policy = data::Permuted{}, .rank = 1, .size = 2}, options,
        position);
    CHECK(batches.passes() == 2);
    CHECK(batches.size() == 6);
    std::vector<std::vector<std::int64_t>> rows;
    std::vector<std::int64_t> samples;
    std::vector<bool> ends;
    for (auto& batch : batches) {
        append(rows.emplace_back(), batch["x"]);
        samples.push_back(position->samples);
        ends.push_back(batches.step_ends());
    }
    CHECK(rows == std::vector<std::vector<std::int64_t>>{
                      {6, 7, 8}, {9, 10, 11}, {18, 19, 20}, {21, 22, 23}, {27, 28}, {29, 30}});
    CHECK(samples == std::vector<std::int64_t>{0, 12, 12, 24, 24, 31});
    CHECK(ends == std::vector<bool>{false, true, false, true, false, true});

    data::Batches sharded({.dataset = numbers(31), .policy = data::Sharded{}, .rank = 1, .size = 2},
                          options, std::make_shared<data::Position>());
    CHECK(sharded.size() == 6);
    ends.clear();
    for ([[maybe_unused]] auto& batch : sharded) {
        ends.push_back(sharded.step_ends());
    }
    CHECK(ends == std::vector<bool>{false, true, false, true, false, true});
    CHECK(code_of([&] {
              (void)data::Batches(
                  {.dataset = numbers(31), .policy = data::Sharded{}, .rank = 1, .size = 3},
                  options, std::make_shared<data::Position>());
          }) == "RT-D14");
}

TEST_CASE("Position.in_other_data_is_an_error") {
    const auto resume = [](std::int64_t rows, const data::BatchOptions& options,
                           data::Position saved) {
        const auto loops = loops_over<data::Sharded>(numbers(rows), options);
        (void)take(saved, 2, to_the_end, loops, column_x);
    };
    const data::BatchOptions options{.size = 3, .shuffle = true, .seed = 4};
    const auto loops = loops_over<data::Sharded>(numbers(50), options);
    data::Position saved;
    (void)take(saved, 3, 2, loops, column_x);
    CHECK(saved.samples == 18);
    CHECK(code_of([&] { resume(51, options, saved); }) == "RT-D12");
    CHECK(contains(message_of([&] { resume(51, options, saved); }), "50 rows"));
    auto other = options;
    other.seed = 5;
    CHECK(code_of([&] { resume(50, other, saved); }) == "RT-D13");
    CHECK(contains(message_of([&] { resume(50, other, saved); }), "seed 5"));
    other.shuffle = false;
    CHECK(code_of([&] { resume(50, other, saved); }) == "RT-D13");
    CHECK(code_of([&] {
              data::Position place = saved;
              (void)take(place, 2, to_the_end, loops_over<data::Permuted>(numbers(50), options),
                         column_x);
          }) == "RT-D13");
    resume(50, options, saved);
    // At the beginning of an epoch anything may change.
    data::Position next{.epoch = 1, .rows = 50, .order = saved.order};
    resume(60, other, next);
    // Checkpoints that do not say what they count in are believed.
    resume(60, other, {.epoch = 0, .samples = 18});
}

TEST_CASE("Position.of_older_checkpoints_goes_on") {
    // What checkpoints have said of a place, from version 0.1 on; this one was made on two ranks,
    // 24 rows behind the beginning of the second epoch.
    const std::string first = R"("epoch": 1, "samples": 24)";
    const std::string counted = first + R"(, "rows": 103, "order": "ORDER")";
    const std::string in_loops = counted + R"(, "around": false)";
    const std::string in_blocks = counted + R"(, "digest": 0, "around": false)";
    const data::BatchOptions options{.size = 4, .shuffle = true, .seed = 8};
    const auto rest_is_that_of_whole_pass = [&](const auto& loops) {
        data::Position whole{.epoch = 1};
        const auto all = take(whole, 2, to_the_end, loops, column_x);
        data::Position saved{.epoch = 1};
        (void)take(saved, 2, 3, loops, column_x);
        REQUIRE(saved.samples == 24);
        for (std::string place : {first, counted, in_loops, in_blocks}) {
            CAPTURE(place);
            if (const auto at = place.find("ORDER"); at != std::string::npos) {
                place.replace(at, 5, saved.order);
            }
            checkpoint::Snapshot snapshot;
            StateWriter out(snapshot, "rtrain");
            out.value("epoch", 1);
            out.value("data", boost::json::parse("{\"train\": {" + place + "}}"));
            Progress progress;
            progress.load(snapshot, 0);
            data::Position loaded = *progress.new_position("train");
            CHECK(loaded.lanes.empty());
            CHECK(take(loaded, 2, to_the_end, loops, column_x) ==
                  std::vector<std::int64_t>(all.begin() + 24, all.end()));
            CHECK(loaded.epoch == 2);
        }
    };
    rest_is_that_of_whole_pass(loops_over<data::Sharded>(numbers(103), options));
    rest_is_that_of_whole_pass(loops_over<data::Permuted>(numbers(103), options));
    rest_is_that_of_whole_pass(
        loops_over<data::Streaming>(numbers_in_blocks({50, 3, 50}), options));
}

namespace {

/// A policy as a user may have it, without anything optional.
struct Halves {
    [[nodiscard]] at::Tensor order(const data::EpochRequest& epoch) const {
        const std::int64_t part = epoch.rows / epoch.size;
        return at::arange(part * epoch.rank, part * (epoch.rank + 1), at::kLong);
    }
    [[nodiscard]] std::int64_t ranks_sharing(int size) const noexcept { return size; }
};

/// One with an order of all ranks.
struct Backwards : Halves {
    [[nodiscard]] at::Tensor rows_at(const data::EpochRequest& epoch, std::int64_t begin,
                                     std::int64_t end) const {
        return epoch.rows - 1 - at::arange(begin, end, at::kLong);
    }
};

struct Counts32 : Halves {
    [[nodiscard]] at::Tensor order(const data::EpochRequest& epoch) const {
        return Halves::order(epoch).to(at::kInt);
    }
};
struct DrawsFromTorch : Halves {
    [[nodiscard]] at::Tensor order(const data::EpochRequest& epoch) const {
        return at::randperm(epoch.rows / epoch.size, at::kLong);
    }
};
struct GivesRank0More : Halves {
    [[nodiscard]] at::Tensor order(const data::EpochRequest& epoch) const {
        return at::arange(epoch.rank == 0 ? epoch.rows : epoch.rows / epoch.size, at::kLong);
    }
};
struct SharesNothing : Halves {
    [[nodiscard]] std::int64_t ranks_sharing(int /*size*/) const noexcept { return 1; }
};
struct OrderOfRank : Halves {
    [[nodiscard]] at::Tensor rows_at(const data::EpochRequest& epoch, std::int64_t begin,
                                     std::int64_t end) const {
        return (at::arange(begin, end, at::kLong) + epoch.rank) % epoch.rows;
    }
};
/// Gives ranks the rest of their own rows, whatever the others have taken.
struct RestOfRank : Halves {
    using Halves::order;
    [[nodiscard]] at::Tensor order(const data::EpochRequest& epoch, std::int64_t taken) const {
        return Halves::order(epoch).slice(0, taken / epoch.size + (taken > 0 ? 1 : 0));
    }
};

} // namespace

RTRAIN_TEST_DATA_POLICY(Halves, Halves{});
RTRAIN_TEST_DATA_POLICY(Backwards, Backwards{});

#define MUST_FAIL(type, holds)                                                                     \
    TEST_CASE("DataPolicy.suite_notices." #type "." #holds* doctest::should_fail()) {              \
        rtrain::testing::DataPolicySuite(type{}).holds();                                          \
    }
MUST_FAIL(Counts32, gives_rows_of_the_data_set)
MUST_FAIL(DrawsFromTorch, depends_on_the_request_alone)
MUST_FAIL(GivesRank0More, gives_all_ranks_equally_many)
MUST_FAIL(SharesNothing, is_shared_by_as_many_ranks_as_it_says)
MUST_FAIL(OrderOfRank, divides_one_order)
MUST_FAIL(RestOfRank, goes_on_where_a_run_was_stopped)
MUST_FAIL(RestOfRank, goes_on_on_another_number_of_ranks)
#undef MUST_FAIL

TEST_CASE("Position.of_a_users_policy") {
    const auto loops = loops_over<Halves>(numbers(20), {.size = 3});
    data::Position position;
    CHECK(take(position, 2, 2, loops, column_x) ==
          std::vector<std::int64_t>{0, 1, 2, 10, 11, 12, 3, 4, 5, 13, 14, 15});
    CHECK(position.samples == 12);
    CHECK(position.order.empty());
    CHECK(take(position, 2, to_the_end, loops, column_x) ==
          std::vector<std::int64_t>{6, 7, 8, 16, 17, 18, 9, 19});
}

TEST_CASE("Randomness.of_a_batch_depends_on_its_place_only") {
    // What is drawn for the micro-batch that begins with a row, on 1, 2 and 4 ranks.
    std::vector<std::map<std::int64_t, float>> of_size;
    for (const int size : {1, 2, 4}) {
        auto& drawn = of_size.emplace_back();
        for (int rank = 0; rank < size; ++rank) {
            data::Batches batches({.dataset = numbers(50),
                                   .policy = data::Permuted{},
                                   .rank = rank,
                                   .size = size,
                                   .random_seed = 17},
                                  {.size = 3, .shuffle = true, .micro_batches = 4},
                                  std::make_shared<data::Position>());
            for (auto& batch : batches) {
                drawn[batch["x"][0].item<std::int64_t>()] = torch::rand({1}).item<float>();
            }
        }
        CHECK(drawn == of_size.front());
    }
    CHECK(of_size.front().size() == 16); // 4 steps, the last of 14 rows
    std::map<float, int> different;
    for (const auto& [row, number] : of_size.front()) {
        ++different[number];
    }
    CHECK(different.size() == of_size.front().size());
}

TEST_CASE("Randomness.of_a_rank_that_is_new") {
    auto generator = at::detail::getDefaultCPUGenerator();
    const auto state_of = [&](std::uint64_t seed) {
        generator.set_current_seed(seed);
        return generator.get_state();
    };
    const auto load = [&](const std::vector<std::uint64_t>& seeds, int rank) {
        checkpoint::Snapshot snapshot;
        StateWriter out(snapshot, "rtrain");
        out.value("epoch", 0);
        out.value("data", boost::json::object());
        for (std::size_t i = 0; i < seeds.size(); ++i) {
            out.tensor("random/" + std::to_string(i), state_of(seeds[i]));
        }
        generator.set_current_seed(99);
        Progress().load(snapshot, rank);
        return torch::rand({1}).item<float>();
    };
    const auto drawn = [&](std::uint64_t seed) {
        generator.set_current_seed(seed);
        return torch::rand({1}).item<float>();
    };
    CHECK(load({7, 8}, 1) == drawn(8));
    CHECK(load({7, 7}, 2) == drawn(7)); // all draw the same
    const float new_rank = load({7, 8}, 2);
    CHECK(new_rank == load({7, 8}, 2)); // each time the same
    for (const float other : {drawn(7), drawn(8), drawn(99), load({7, 8}, 3), load({8, 7}, 2)}) {
        CHECK(new_rank != other);
    }
}
