// SPDX-License-Identifier: Apache-2.0
// Rows that are not counted, streamed by all ranks together, who are threads of this process.
#include "support/thrown.hpp"

#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/dataset/generator.hpp>
#include <rtrain/data/order/permuted.hpp>
#include <rtrain/data/order/sharded.hpp>
#include <rtrain/data/order/streaming.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/testing/passes.hpp>

#include <doctest/doctest.h>

#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lanes_test {

using namespace rtrain;
using data::Batch;
using data::Dataset;
using rtrain::testing::numbers;
using rtrain::testing::numbers_in_blocks;
using rtrain::testing::Rows;
using rtrain::testing::to_the_end;
using test::code_of;
using test::contains;
using test::message_of;

namespace {

using Random = std::mt19937; // the same numbers everywhere; distributions are not

std::int64_t between(Random& random, std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random()) % (most - least + 1);
}

template <class T>
T one_of(Random& random, const std::vector<T>& values) {
    return values[random() % values.size()];
}

/// Ranks that agree, each called by a thread of its own.
class CollectiveFlag {
public:
    explicit CollectiveFlag(int size) : meeting_(size), known_(static_cast<std::size_t>(size)) {}

    [[nodiscard]] data::AllReduceMax of(int rank) {
        return [this, rank](at::Tensor& mine) {
            times += rank == 0 ? 1 : 0;
            known_[static_cast<std::size_t>(rank)] = mine.clone();
            meeting_.arrive_and_wait();
            if (has_left) {
                throw std::runtime_error("another rank has died");
            }
            const at::Tensor greatest = at::stack(known_).amax(0);
            meeting_.arrive_and_wait();
            mine.copy_(greatest);
        };
    }
    void leave() {
        has_left = true;
        meeting_.arrive_and_drop();
    }
    std::atomic<int> times = 0;
    std::atomic<bool> has_left = false;

private:
    std::barrier<> meeting_;
    std::vector<at::Tensor> known_;
};

struct Taken {
    std::vector<std::vector<Rows>> batches; ///< by rank
    std::vector<data::Position> positions;  ///< behind the last of them, by rank
    std::vector<std::exception_ptr> errors; ///< by rank
    int agreements = 0;

    /// By step, of all ranks, in the order of micro-batches.
    [[nodiscard]] std::vector<Rows> steps(std::size_t passes = 1) const {
        std::vector<Rows> steps(batches.front().size() / passes);
        for (std::size_t step = 0; step < steps.size(); ++step) {
            for (const auto& of_rank : batches) {
                for (std::size_t pass = 0; pass < passes; ++pass) {
                    const Rows& rows = of_rank[step * passes + pass];
                    steps[step].insert(steps[step].end(), rows.begin(), rows.end());
                }
            }
        }
        return steps;
    }
    [[nodiscard]] Rows all() const {
        Rows all;
        for (const Rows& step : steps()) {
            all.insert(all.end(), step.begin(), step.end());
        }
        return all;
    }
    [[nodiscard]] const data::Position& position() const { return positions.front(); }
};

struct Loop {
    Dataset dataset;
    data::Streaming policy = {};
    data::BatchOptions options = {};

    /// What `size` ranks take in up to `batches` batches each, from `position`.
    [[nodiscard]] Taken take(int size, int batches = to_the_end,
                             const data::Position& position = {}) const {
        const auto ranks = static_cast<std::size_t>(size);
        Taken taken{.batches = std::vector<std::vector<Rows>>(ranks),
                    .positions = std::vector<data::Position>(ranks),
                    .errors = std::vector<std::exception_ptr>(ranks)};
        CollectiveFlag agreement(size);
        {
            std::vector<std::jthread> threads;
            for (int rank = 0; rank < size; ++rank) {
                threads.emplace_back([&, rank] {
                    const auto at = static_cast<std::size_t>(rank);
                    try {
                        walk(rank, size, batches, std::make_shared<data::Position>(position),
                             agreement.of(rank), taken.batches[at], taken.positions[at]);
                    } catch (...) {
                        taken.errors[at] = std::current_exception();
                        agreement.leave();
                    }
                });
            }
        }
        taken.agreements = agreement.times;
        return taken;
    }

private:
    void walk(int rank, int size, int most, const std::shared_ptr<data::Position>& position,
              data::AllReduceMax agree, std::vector<Rows>& batches, data::Position& place) const {
        data::Batches loop({.dataset = dataset,
                            .policy = policy,
                            .rank = rank,
                            .size = size,
                            .agree = std::move(agree)},
                           options, position);
        for (auto& batch : loop) {
            rtrain::testing::append(batches.emplace_back(), batch["x"]);
            place = *position;
            place.iterating = false; // a checkpoint does not hold that
            if (static_cast<int>(batches.size()) == most) {
                return;
            }
        }
        place = *position;
    }
};

/// The ranks took equally many batches, of equally many rows, and agree where they are.
void check_equal(const Taken& taken) {
    for (std::size_t rank = 0; rank < taken.batches.size(); ++rank) {
        REQUIRE(!taken.errors[rank]);
        REQUIRE(taken.batches[rank].size() == taken.batches.front().size());
        CHECK(taken.positions[rank].samples == taken.position().samples);
        CHECK((taken.positions[rank].lanes == taken.position().lanes));
        CHECK(taken.positions[rank].left_out == taken.position().left_out);
        for (std::size_t i = 0; i < taken.batches[rank].size(); ++i) {
            CHECK(taken.batches[rank][i].size() == taken.batches.front()[i].size());
        }
    }
}

/// Whether there were too few rows for a batch on each rank, which all of them say.
bool has_no_batch(const Taken& taken) {
    const auto says_so = [](const std::exception_ptr& error) {
        return error && test::code_of([&] { std::rethrow_exception(error); }) == "RT-D106";
    };
    const bool has_none = says_so(taken.errors.front());
    for (std::size_t rank = 0; rank < taken.errors.size(); ++rank) {
        CHECK(says_so(taken.errors[rank]) == has_none);
        CHECK((!has_none || taken.batches[rank].empty()));
    }
    return has_none;
}

/// Each of `rows` was taken once, but for as many as may be left out.
void check_once(const Rows& taken, const Rows& rows, std::int64_t left_out) {
    Rows sorted = taken;
    std::ranges::sort(sorted);
    CHECK(std::ranges::adjacent_find(sorted) == sorted.end());
    Rows missing;
    Rows foreign;
    std::ranges::set_difference(rows, sorted, std::back_inserter(missing));
    std::ranges::set_difference(sorted, rows, std::back_inserter(foreign));
    CHECK(foreign.empty());
    CHECK(static_cast<std::int64_t>(missing.size()) <= left_out);
}

/// A data set whose rows are not counted, and those rows, sorted.
struct Drawn {
    Loop loop;
    Rows rows;
    std::int64_t most = 1; ///< rows that are made of one
};

std::vector<std::int64_t> random_blocks(Random& random) {
    std::vector<std::int64_t> blocks(static_cast<std::size_t>(between(random, 1, 30)));
    for (auto& rows : blocks) {
        rows = one_of<std::int64_t>(random, {0, 1, 7, 40, 200});
    }
    blocks.back() += 1;
    return blocks;
}

/// Keeps 0, 1, 50 or 100 %, or all at the front; some make several rows of what is left.
Drawn draw(Random& random) {
    const std::vector<std::int64_t> blocks = random_blocks(random);
    const std::int64_t rows = std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
    const auto kind = random() % 5;
    const auto keeps = [=](std::int64_t x) {
        switch (kind) {
        case 0:
            return false;
        case 1:
            return x % 100 == 37;
        case 2:
            return data::hash_of(1, x) % 2 == 0;
        case 3:
            return true;
        default:
            return x < rows / 5;
        }
    };
    const bool several = random() % 3 == 0;
    Drawn drawn{
        {random() % 3 == 0 ? numbers(rows) : numbers_in_blocks(blocks)}, {}, several ? 6 : 1};
    drawn.loop.dataset = drawn.loop.dataset.filter(
        [=](const Batch& row) { return keeps(row["x"].item().toLong()); });
    if (several) {
        drawn.loop.dataset = drawn.loop.dataset.flat_map([](const Batch& row) {
            const std::int64_t x = row["x"].item().toLong();
            return Batch({{"x", at::arange(x * 10, x * 10 + x % 7)}});
        });
    }
    for (std::int64_t x = 0; x < rows; ++x) {
        for (std::int64_t i = 0; keeps(x) && i < (several ? x % 7 : 1); ++i) {
            drawn.rows.push_back(several ? x * 10 + i : x);
        }
    }
    drawn.loop.policy.lanes = one_of<std::int64_t>(random, {1, 2, 5, 12, 24});
    drawn.loop.options = {.size = between(random, 1, 9),
                          .shuffle = random() % 4 != 0,
                          .seed = random(),
                          .drop_last = random() % 3 == 0,
                          .memory_bytes = 2 * 24 * 8 * between(random, 1, 40)};
    return drawn;
}

} // namespace

TEST_CASE("Lanes.all_ranks_take_equally_many_batches_and_each_row_once") {
    Random random(1);
    for (int trial = 0; trial < 60; ++trial) {
        CAPTURE(trial);
        const Drawn drawn = draw(random);
        const int ranks = one_of<int>(random, {1, 2, 3, 4, 5, 7, 12, 24});
        CAPTURE(ranks);
        const Taken taken = drawn.loop.take(ranks);
        if (has_no_batch(taken)) {
            CHECK((ranks > 1 || drawn.rows.empty()));
            continue;
        }
        check_equal(taken);
        check_once(taken.all(), drawn.rows, drawn.most * taken.position().left_out);
        if (ranks == 1 && !drawn.loop.options.drop_last) {
            CHECK(taken.all().size() == drawn.rows.size());
            CHECK(taken.position().left_out == 0);
        }
    }
}

TEST_CASE("Lanes.a_pass_goes_on_anywhere_on_any_number_of_ranks") {
    Random random(2);
    for (int trial = 0; trial < 60; ++trial) {
        CAPTURE(trial);
        const Drawn drawn = draw(random);
        const int ranks = one_of<int>(random, {1, 2, 3, 4, 6});
        const Taken whole = drawn.loop.take(ranks);
        if (has_no_batch(whole)) {
            continue;
        }
        check_equal(whole);
        const auto batches = static_cast<int>(whole.batches.front().size());
        if (batches == 0) {
            continue;
        }
        const int stop = static_cast<int>(between(random, 1, batches));
        const Taken before = drawn.loop.take(ranks, stop);
        check_equal(before);
        { // on as many: as if nothing had happened
            const Taken rest = drawn.loop.take(ranks, to_the_end, before.position());
            check_equal(rest);
            Rows both = before.all();
            const Rows more = rest.all();
            both.insert(both.end(), more.begin(), more.end());
            CHECK(both == whole.all());
        }
        const int others = one_of<int>(random, {1, 2, 3, 5, 8});
        if (others > drawn.loop.policy.lanes || ranks > drawn.loop.policy.lanes) {
            continue; // that is another order
        }
        const Taken rest = drawn.loop.take(others, to_the_end, before.position());
        check_equal(rest);
        Rows both = before.all();
        const Rows more = rest.all();
        both.insert(both.end(), more.begin(), more.end());
        if (stop < batches) { // else the epoch is over, whatever was left out
            check_once(both, drawn.rows, drawn.most * rest.position().left_out);
        } else {
            check_once(both, drawn.rows, static_cast<std::int64_t>(drawn.rows.size()));
        }
    }
}

TEST_CASE("Lanes.micro_batches_are_the_same_on_any_number_of_ranks") {
    Random random(3);
    for (int trial = 0; trial < 25; ++trial) {
        CAPTURE(trial);
        Drawn drawn = draw(random);
        drawn.loop.options.micro_batches = 4;
        const auto whole = drawn.loop.take(1).steps(4);
        const Taken two = drawn.loop.take(2);
        const Taken four = drawn.loop.take(4);
        if (has_no_batch(two)) {
            CHECK(has_no_batch(four));
            CHECK(whole.empty());
            continue;
        }
        check_equal(two);
        check_equal(four);
        CHECK(two.steps(2) == whole);
        CHECK(four.steps(1) == whole);
        if (whole.empty()) {
            continue;
        }
        // Stopped on 4, within a step on 2, and at the end on 1.
        const int stop = static_cast<int>(between(random, 1, static_cast<int>(whole.size())));
        const Taken first = drawn.loop.take(4, stop);
        auto steps = first.steps(1);
        const Taken second = drawn.loop.take(2, 1, first.position());
        if (second.position().epoch > 0) { // the first had all
            CHECK(steps == whole);
            continue;
        }
        const Taken third = drawn.loop.take(1, to_the_end, second.position());
        const auto rest = third.steps(4);
        steps.insert(steps.end(), rest.begin(), rest.end());
        CHECK(steps == whole);
    }
}

TEST_CASE("Lanes.where_all_rows_are_kept_the_order_is_that_of_counted_ones") {
    Loop loop{numbers_in_blocks(std::vector<std::int64_t>(40, 25)),
              {.lanes = 12},
              {.size = 8, .shuffle = true, .seed = 3, .memory_bytes = 2 * 12 * 8 * 20}};
    for (const int ranks : {1, 2, 3, 12}) {
        CAPTURE(ranks);
        const auto counted = loop.take(ranks, 5);
        Loop open = loop;
        open.dataset = loop.dataset.filter(
            [](const Batch& batch) { return at::ones({batch.size()}, at::kBool); });
        const auto taken = open.take(ranks, 5);
        CHECK((taken.batches == counted.batches));
        CHECK(counted.agreements == 0);
        CHECK(taken.agreements == (ranks == 1 ? 0 : 5)); // one a step
    }
}

TEST_CASE("Lanes.batches_do_not_depend_on_threads_that_read_ahead") {
    Random random(4);
    for (int trial = 0; trial < 10; ++trial) {
        CAPTURE(trial);
        Drawn drawn = draw(random);
        drawn.loop.options.micro_batches = one_of<std::int64_t>(random, {0, 6});
        const Taken inline_ = drawn.loop.take(3);
        for (const int threads : {1, 2, 4}) {
            drawn.loop.options.threads = threads;
            const Taken taken = drawn.loop.take(3);
            CHECK((taken.batches == inline_.batches));
            CHECK(taken.agreements == inline_.agreements);
        }
    }
}

TEST_CASE("Lanes.functions_and_generators_are_called_on_all_threads") {
    std::atomic<int> calls = 0;
    const auto meet = [&] { // the first one ends when there is a second
        for (const int mine = ++calls; mine == 1 && calls == 1;) {
            std::this_thread::yield();
        }
    };
    const Dataset mapped = numbers(40).filter([&](const Batch& batch) {
        meet();
        return at::ones({batch.size()}, at::kBool);
    });
    const Dataset generated = data::from_generator([&](const data::GeneratorRequest& from) {
        return [&, lane = from.lane, row = from.first_row]() mutable -> std::optional<Batch> {
            if (row == 10) {
                return std::nullopt;
            }
            meet();
            const std::int64_t first = 4 * row++ + lane;
            return Batch({{"x", at::arange(first, first + 1)}});
        };
    });
    Rows expected(40);
    std::iota(expected.begin(), expected.end(), std::int64_t{0});
    for (const Dataset& dataset : {mapped, generated}) {
        calls = 0;
        const Loop loop{dataset, {.lanes = 4}, {.size = 8, .threads = 2}};
        CHECK(loop.take(1).all() == expected);
    }
}

TEST_CASE("Lanes.few_rows_are_left_out_where_ranks_have_unequal_lanes") {
    for (const int ranks : {4, 5, 7, 24}) {
        CAPTURE(ranks);
        const Loop loop{
            numbers_in_blocks(std::vector<std::int64_t>(500, 40)).filter([](const Batch& batch) {
                return batch["x"].mul(2654435761).remainder(1009).lt(505);
            }),
            {},
            {.size = 16, .shuffle = true}};
        const Taken taken = loop.take(ranks);
        check_equal(taken);
        const auto rows = loop.dataset.count();
        const auto left = rows - static_cast<std::int64_t>(taken.all().size());
        CHECK(left <= rows / 40);
        CHECK(left <= taken.position().left_out);
    }
}

TEST_CASE("Lanes.fewer_rows_than_ranks_are_an_error_with_both_numbers") {
    for (const std::int64_t rows : {0, 1, 3}) {
        for (const int ranks : {1, 4}) {
            for (const std::int64_t size : {2, 16}) {
                CAPTURE(rows);
                CAPTURE(ranks);
                const Loop loop{numbers_in_blocks({40, 40, 40}).filter([=](const Batch& batch) {
                                    return batch["x"].lt(rows * 30).logical_and(
                                        batch["x"].remainder(30) == 0);
                                }),
                                {},
                                {.size = size}};
                const Taken taken = loop.take(ranks);
                Loop whole = loop; // a batch on each rank would be left out, but there is none
                whole.options.drop_last = true;
                CHECK(has_no_batch(whole.take(ranks)) == (rows < ranks));
                if (rows >= ranks) {
                    check_equal(taken);
                    CHECK(std::ssize(taken.all()) == rows);
                    continue;
                }
                for (const auto& error : taken.errors) {
                    const std::string text =
                        test::message_of([&] { std::rethrow_exception(error); });
                    CHECK(test::contains(text, "RT-D106"));
                    CHECK(test::contains(text, "no batch: " + std::to_string(rows) + " row"));
                    CHECK(test::contains(text, std::to_string(ranks) + " ranks"));
                }
            }
        }
    }
}

TEST_CASE("Lanes.an_evaluation_takes_each_row_once") {
    for (const int ranks : {1, 2, 4, 5, 30}) {
        for (const std::int64_t rows : {0, 1, 7, 333}) {
            CAPTURE(ranks);
            CAPTURE(rows);
            const Loop loop{numbers_in_blocks(std::vector<std::int64_t>(25, 40))
                                .filter([=](const Batch& batch) {
                                    return batch["x"].remainder(3).eq(0).logical_and(
                                        batch["x"].lt(3 * rows));
                                }),
                            {},
                            {.size = 4, .shuffle = true, .threads = 2, .each_row_once = true}};
            const Taken taken = loop.take(ranks);
            CHECK(taken.agreements == 0); // ranks do not wait for each other
            Rows all;
            for (std::size_t rank = 0; rank < taken.batches.size(); ++rank) {
                REQUIRE(!taken.errors[rank]);
                for (const Rows& batch : taken.batches[rank]) {
                    CHECK(batch.size() > 0);
                    all.insert(all.end(), batch.begin(), batch.end());
                }
            }
            std::ranges::sort(all);
            REQUIRE(std::ssize(all) == rows);
            for (std::int64_t row = 0; row < rows; ++row) {
                CHECK(all[static_cast<std::size_t>(row)] == 3 * row);
            }
        }
    }
}

TEST_CASE("Lanes.what_collate_is_given_is_what_the_loop_gets") {
    Loop loop{numbers(100).filter([](const Batch& batch) { return batch["x"].lt(50); }),
              {},
              {.size = 7, .threads = 1, .collate = [](Batch batch) {
                   CHECK(batch.size() > 0); // a step that is not taken never comes here
                   batch["x"] = batch["x"] + 1000;
                   return batch;
               }}};
    Rows rows = loop.take(3).all();
    CHECK(std::ranges::all_of(rows, [](auto x) { return x >= 1000 && x < 1050; }));
}

TEST_CASE("Lanes.other_policies_and_sizes_say_that_rows_are_not_counted") {
    const Dataset left = numbers(10).filter([](const Batch& batch) { return batch["x"].lt(5); });
    const auto position = std::make_shared<data::Position>();
    const auto first_of = [&](auto policy) {
        (void)data::Batches({.dataset = left, .policy = policy}, {}, position).begin();
    };
    CHECK(code_of([&] { first_of(data::Sharded{}); }) == "RT-D71");
    CHECK(code_of([&] { first_of(data::Permuted{}); }) == "RT-D71");
    const data::Batches batches({.dataset = left, .policy = data::Streaming{}, .size = 2}, {},
                                position);
    CHECK(code_of([&] { (void)batches.size(); }) == "RT-D71");
    CHECK(code_of([&] { (void)batches.begin(); }) == "RT-D74");
    const data::Batches whole(
        {.dataset = left, .policy = data::Streaming{}, .rank = 1, .size = 2, .is_split = false}, {},
        position);
    Rows rows;
    for (const auto& batch : whole) { // each rank all of them, and nothing to agree upon
        rtrain::testing::append(rows, batch["x"]);
    }
    CHECK(rows.size() == 5);
}

TEST_CASE("Lanes.a_filter_that_is_gone_or_new_is_another_order") {
    Loop loop{numbers(100).filter([](const Batch& batch) { return batch["x"].lt(50); })};
    loop.options.size = 4;
    const data::Position position = loop.take(1, 3).position();
    CHECK(position.lanes.size() == 24);
    loop.dataset = numbers(100);
    const Taken taken = loop.take(1, 1, position);
    REQUIRE(taken.errors.front());
    CHECK(code_of([&] { std::rethrow_exception(taken.errors.front()); }) == "RT-D13");
}

TEST_CASE("Lanes.what_a_function_throws_comes_out_on_its_rank_and_ends_the_others") {
    for (const auto& [threads, micro_batches] :
         {std::pair(0, 0), std::pair(2, 0), std::pair(0, 6), std::pair(2, 6)}) {
        Loop loop{numbers(1000).filter([](const Batch& batch) {
                      if (batch["x"].eq(777).any().item().toBool()) {
                          throw std::logic_error("row 777");
                      }
                      return at::ones({batch.size()}, at::kBool);
                  }),
                  {},
                  {.size = 5, .micro_batches = micro_batches, .threads = threads}};
        const Taken taken = loop.take(3);
        int of_rows = 0;
        for (const auto& error : taken.errors) {
            REQUIRE(error);
            try {
                std::rethrow_exception(error);
            } catch (const std::logic_error& mine) {
                CHECK(std::string(mine.what()) == "row 777");
                ++of_rows;
            } catch (const std::runtime_error& another) {
                CHECK(contains(another.what(), "another rank"));
            }
        }
        CHECK(of_rows == 1);
    }
}

TEST_CASE("Lanes.a_generator_goes_on_where_it_was") {
    std::atomic<int> begun = 0;
    // Lane l has 20 + 3 l rows, in batches of 0 to 4.
    const Dataset generated = data::from_generator([&](const data::GeneratorRequest& from) {
        ++begun;
        return [from, row = from.first_row]() mutable -> std::optional<Batch> {
            const std::int64_t end = 20 + 3 * from.lane;
            if (row >= end) {
                return std::nullopt;
            }
            const std::int64_t begin = row;
            row = std::min(end, row + begin * 7 % 5 + (begin % 3 == 0 ? 1 : 0));
            if (row == begin) {
                ++row;
            }
            const std::int64_t first = from.epoch * 1'000'000 + from.lane * 1000 + begin;
            return Batch({{"x", at::arange(first, first + row - begin)}});
        };
    });
    Rows expected;
    for (std::int64_t lane = 0; lane < 6; ++lane) {
        for (std::int64_t row = 0; row < 20 + 3 * lane; ++row) {
            expected.push_back(lane * 1000 + row);
        }
    }
    const Loop loop{generated, {.lanes = 6}, {.size = 4}};
    const Taken whole = loop.take(1);
    check_once(whole.all(), expected, 0);
    CHECK(begun >= 6);
    for (const int ranks : {2, 3, 5, 6}) {
        const Taken before = loop.take(ranks, 4);
        const Taken rest = loop.take(1, to_the_end, before.position());
        check_equal(before);
        Rows both = before.all();
        const Rows more = rest.all();
        both.insert(both.end(), more.begin(), more.end());
        check_once(both, expected, 0);
    }
    data::Position second{.epoch = 1};
    CHECK(loop.take(1, 1, second).all() == Rows{1'000'000, 1'001'000, 1'002'000, 1'003'000});
    CHECK(code_of([&] { (void)generated.size(); }) == "RT-D71");
    CHECK(code_of([&] { (void)generated.counted().size(); }) == "RT-D72");
    CHECK(generated.take(3).size() == 3);
    const Loop even{
        generated.filter([](const Batch& batch) { return batch["x"].remainder(2) == 0; })
            .flat_map([](const Batch& row) {
                return Batch({{"x", row["x"].repeat({2})}});
            }),
        {.lanes = 6},
        {.size = 3}};
    const Taken doubled = even.take(1, 5);
    const Taken rest = even.take(1, to_the_end, doubled.position());
    CHECK(doubled.all().size() + rest.all().size() == 84 * 2);
}

TEST_CASE("Lanes.a_generator_that_never_ends_is_left") {
    const Loop loop{data::from_generator([](const data::GeneratorRequest& from) {
                        return [x = from.first_row]() mutable {
                            const std::int64_t first = x;
                            x += 10;
                            return std::optional(Batch({{"x", at::arange(first, x)}}));
                        };
                    }),
                    {.lanes = 2},
                    {.size = 8, .threads = 1}};
    CHECK(loop.take(2, 50).all().size() == 800);
    const Loop fails{data::from_generator([](const data::GeneratorRequest&) {
        return []() -> std::optional<Batch> { throw std::logic_error("no game"); };
    })};
    const Taken taken = fails.take(1);
    CHECK_THROWS_WITH_AS(std::rethrow_exception(taken.errors.front()), "no game", std::logic_error);
}

} // namespace lanes_test
