// SPDX-License-Identifier: Apache-2.0
// What is read ahead on threads comes in order, with its errors, and nothing outlives the loop.
#include "support/training.hpp"

#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/loader.hpp>
#include <rtrain/data/order/permuted.hpp>
#include <rtrain/data/order/random.hpp>
#include <rtrain/data/order/sharded.hpp>
#include <rtrain/data/order/streaming.hpp>
#include <rtrain/data/readers/json.hpp>
#include <rtrain/data/shard.hpp>

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace loader_test {

using namespace rtrain;
using data::Loader;
using test::code_of;

namespace {

/// Jobs 0, 1, ... below `end`, which return their numbers; `before` is called first in each.
template <class Before>
auto numbered(int& given, int end, Before before) {
    return [&given, end, before]() -> std::optional<Loader<int>::Job> {
        if (given == end) {
            return std::nullopt;
        }
        return [number = given++, before] {
            before(number);
            return number;
        };
    };
}

} // namespace

TEST_CASE("Loader.gives_results_in_order_whatever_ends_first") {
    std::mutex mutex;
    std::condition_variable changed;
    int last_over = -1;
    // Each pair of jobs ends the wrong way round.
    const auto backwards = [&](int number) {
        std::unique_lock lock(mutex);
        if (number % 2 == 0) {
            changed.wait(lock, [&] { return last_over == number + 1; });
        }
        last_over = number;
        changed.notify_all();
    };
    int given = 0;
    const auto jobs = numbered(given, 20, backwards);
    Loader<int> loader(2, 4);
    for (int number = 0; number < 20; ++number) {
        CHECK(loader.next(jobs) == number);
    }
    CHECK(loader.next(jobs) == std::nullopt);
    CHECK(loader.next(jobs) == std::nullopt);
}

TEST_CASE("Loader.reads_no_further_ahead_than_it_may") {
    int given = 0;
    const auto jobs = numbered(given, 100, [](int) {});
    Loader<int> loader(3, 5);
    for (int number = 0; number < 50; ++number) {
        REQUIRE(loader.next(jobs) == number);
        CHECK(given == number + 5);
    }
}

TEST_CASE("Loader.throws_what_a_job_throws_in_its_place") {
    int given = 0;
    const auto jobs = numbered(given, 10, [](int number) {
        if (number == 3) {
            throw std::out_of_range("three");
        }
    });
    Loader<int> loader(2, 8);
    for (int number = 0; number < 3; ++number) {
        CHECK(loader.next(jobs) == number);
    }
    CHECK_THROWS_AS((void)loader.next(jobs), std::out_of_range);
    CHECK(loader.next(jobs) == 4); // for who wants to go on
}

TEST_CASE("Loader.begins_nothing_more_once_it_goes") {
    std::atomic<int> begun = 0;
    const auto kept = std::make_shared<int>(7); // held by each job
    {
        int given = 0;
        const auto jobs = numbered(given, 1000, [&begun, kept](int) { ++begun; });
        Loader<int> loader(2, 500);
        CHECK(loader.next(jobs) == 0);
    }
    const int at_the_end = begun;
    CHECK(at_the_end <= 500);
    CHECK(kept.use_count() == 1);
}

TEST_CASE("Loader.threads_compute_alone_and_without_gradients") {
    struct Seen {
        bool gradients;
        int threads;
    };
    const int before = at::get_num_threads();
    Loader<Seen> loader(1, 1);
    bool given = false;
    const auto seen = loader.next([&]() -> std::optional<Loader<Seen>::Job> {
        return std::exchange(given, true) ? std::nullopt : std::optional<Loader<Seen>::Job>([] {
            return Seen{c10::GradMode::is_enabled(), at::get_num_threads()};
        });
    });
    REQUIRE(seen);
    CHECK_FALSE(seen->gradients);
    CHECK(seen->threads == 1);
    CHECK(c10::GradMode::is_enabled());
    CHECK(at::get_num_threads() == before);
}

namespace {

constexpr std::int64_t rows = 103;

data::Dataset numbers() {
    return data::from_tensors({{"x", torch::arange(rows)}});
}

class Tens : public data::Dataset::BlockSource {
public:
    [[nodiscard]] std::vector<Block> blocks() const override {
        std::vector<Block> blocks(10, {.rows = 10, .bytes = 80});
        blocks.push_back({.rows = 3, .bytes = 24});
        return blocks;
    }
    [[nodiscard]] data::Batch read(std::int64_t block) const override {
        return data::Batch(
            {{"x", torch::arange(10 * block, std::min<std::int64_t>(10 * block + 10, rows))}});
    }
};

template <class D>
std::vector<std::vector<std::int64_t>> pass(const data::Dataset& dataset,
                                            data::BatchOptions options, int rank = 0, int ranks = 1,
                                            const data::Position& from = {}) {
    data::Batches batches({.dataset = dataset, .policy = D{}, .rank = rank, .size = ranks}, options,
                          std::make_shared<data::Position>(from));
    std::vector<std::vector<std::int64_t>> read;
    for (auto& batch : batches) {
        const auto x = batch["x"].contiguous();
        read.emplace_back(x.template data_ptr<std::int64_t>(),
                          x.template data_ptr<std::int64_t>() + x.numel());
    }
    return read;
}

} // namespace

TEST_CASE_TEMPLATE("Batches.are_the_same_with_any_number_of_threads", D, data::Sharded,
                   data::Permuted, data::Streaming) {
    const auto blocks = data::from_blocks(std::make_shared<Tens>());
    for (const auto& dataset : {numbers(), blocks, blocks.map_batches([](data::Batch batch) {
                                    batch["x"] = batch["x"] * 3;
                                    return batch;
                                })}) {
        for (const int rank : {0, 1}) {
            for (const std::int64_t taken : {0, 48}) {
                const auto with = [&](int threads, int prefetch) {
                    return pass<D>(dataset,
                                   {.size = 4,
                                    .shuffle = true,
                                    .prefetch = prefetch,
                                    .threads = threads,
                                    .memory_bytes = 4096},
                                   rank, 2, {.epoch = 2, .samples = taken});
                };
                const auto expected = with(0, 0);
                REQUIRE(expected.size() > 5);
                CHECK(with(1, 0) == expected);
                CHECK(with(2, 7) == expected);
                CHECK(with(4, 1) == expected);
            }
        }
    }
}

TEST_CASE("Batches.errors_of_threads_come_in_their_place_and_loops_may_end_early") {
    const auto throwing = numbers().map_batches([](data::Batch batch) {
        if (batch["x"][0].item<std::int64_t>() == 40) {
            throw DataError("RT-D4", "row 40");
        }
        return batch;
    });
    const data::BatchOptions options{.size = 10, .threads = 3};
    data::Batches batches({.dataset = throwing, .policy = data::Sharded{}}, options,
                          std::make_shared<data::Position>());
    int read = 0;
    CHECK(code_of([&] {
              for ([[maybe_unused]] auto& batch : batches) {
                  ++read;
              }
          }) == "RT-D4");
    CHECK(read == 4);
    for ([[maybe_unused]] auto& batch : batches) {
        break;
    }
    CHECK(batches.epoch() == 2);
}

namespace {

/// What this process has of threads or open files ("task", "fd").
std::size_t count_of(const std::string& what) {
    const std::filesystem::directory_iterator all("/proc/self/" + what);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// A thread that was joined may be listed for a moment.
bool is_left_with(std::size_t threads, std::size_t descriptors) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (count_of("task") > threads && std::chrono::steady_clock::now() < limit) {
        std::this_thread::yield();
    }
    return count_of("task") <= threads && count_of("fd") <= descriptors;
}

/// A run whose loop over batches is left by `how`.
template <class D>
std::string run_left_by(const std::string& how, const test::Directory& directory,
                        const std::filesystem::path& file) {
    const auto dataset =
        data::read_json(file, {.block_bytes = 256}).map_batches([=](data::Batch batch) {
            if (how == "throw-of-function" && (batch["x"] == 70).any().item<bool>()) {
                throw DataError("RT-D4", "row 70");
            }
            return batch;
        });
    Trainer<backend::Local, D> trainer(
        {.run = {.name = how,
                 .storage_path = directory.path(),
                 .failure = {.max_failures = how == "restart" ? 1 : 0}},
         .datasets = {{"rows", dataset}}});
    bool has_thrown = false;
    return code_of([&] {
        (void)trainer.fit([&](auto& worker) {
            int batches = 0;
            for ([[maybe_unused]] auto& batch : worker.dataset_shard("rows").batches(
                     {.size = 4, .shuffle = true, .threads = 3, .memory_bytes = 1 << 16})) {
                if (++batches == 5 && how == "break") {
                    break;
                }
                if (batches == 5 && (how == "throw" || how == "restart") &&
                    !(how == "restart" && std::exchange(has_thrown, true))) {
                    throw std::runtime_error("bad luck");
                }
            }
        });
    });
}

} // namespace

TEST_CASE_TEMPLATE("Batches.leave_no_thread_and_no_open_file", D, data::Sharded, data::Permuted,
                   data::Streaming) {
    const test::Directory directory("left");
    const auto file = directory.path() / "rows.json";
    {
        std::ofstream text(file);
        for (int row = 0; row < 400; ++row) {
            text << "{\"x\": " << row << "}\n";
        }
    }
    CHECK(run_left_by<D>("end", directory, file).empty()); // what libraries keep is there now
    const std::size_t threads = count_of("task");
    const std::size_t descriptors = count_of("fd");
    for (const std::string how : {"break", "throw", "throw-of-function", "restart"}) {
        CAPTURE(how);
        CHECK(run_left_by<D>(how, directory, file) == (how.starts_with("throw") ? "RT-T1" : ""));
        CHECK(is_left_with(threads, descriptors));
    }
}

TEST_CASE("Batches.are_collated_and_converted") {
    for (const int threads : {0, 2}) {
        const auto twice = [](data::Batch batch) {
            batch["x"] = torch::stack({batch["x"], batch["x"]}, 1);
            return batch;
        };
        data::Batches batches(
            {.dataset = numbers(), .policy = data::Sharded{}},
            {.size = 50, .threads = threads, .collate = twice, .dtypes = {{"x", torch::kHalf}}},
            std::make_shared<data::Position>());
        auto first = batches.begin();
        CHECK((*first)["x"].sizes() == at::IntArrayRef{50, 2});
        CHECK(((*first)["x"].scalar_type() == torch::kHalf));
    }
    const data::BatchOptions unknown{.dtypes = {{"y", torch::kFloat}}};
    CHECK(code_of([&] { (void)pass<data::Sharded>(numbers(), unknown); }) == "RT-D2");
    CHECK(code_of([&] { (void)pass<data::Sharded>(numbers(), {.threads = -1}); }) == "RT-D70");
    CHECK(code_of([&] { (void)pass<data::Sharded>(numbers(), {.prefetch = -1}); }) == "RT-D70");
}

TEST_CASE("Batches.say_where_their_time_goes") {
    for (const int threads : {0, 2}) {
        CAPTURE(threads);
        data::Batches batches({.dataset = numbers(), .policy = data::Sharded{}},
                              {.size = 10, .threads = threads, .dtypes = {{"x", torch::kInt}}},
                              std::make_shared<data::Position>());
        CHECK(batches.stats().slowest == "loop");
        for (int pass = 0; pass < 2; ++pass) {
            for ([[maybe_unused]] auto& batch : batches) {
            }
        }
        const data::BatchStats stats = batches.stats();
        CHECK(stats.read.rows == 2 * rows);
        CHECK(stats.read.bytes == 2 * rows * 8);
        CHECK(stats.collate.rows == 2 * rows);
        CHECK(stats.collate.bytes == 2 * rows * 4);
        CHECK(stats.loop.rows == 2 * rows);
        CHECK(stats.transfer.rows == 0);
        CHECK(stats.read.busy_s > 0);
        CHECK(stats.collate.busy_s > 0);
        CHECK(stats.loop.waiting_s > 0);
        CHECK((stats.read.waiting_s > 0) == (threads > 0));
    }

    data::BatchCounters counters;
    using std::chrono::seconds;
    counters.read.add_busy(seconds(3));
    counters.collate.add_busy(seconds(4));
    counters.loop.add_busy(seconds(20));
    counters.loop.add_waiting(seconds(1));
    CHECK(counters.stats().slowest == "loop");
    counters.loop.add_waiting(seconds(6));
    CHECK(counters.stats().slowest == "collate");
    counters.read.add_busy(seconds(2));
    CHECK(counters.stats().slowest == "read");
    counters.transfer.add_busy(seconds(9));
    CHECK(counters.stats().slowest == "transfer");
    CHECK(test::contains(to_string(counters.stats()), "9.000 s busy"));
}

TEST_CASE_TEMPLATE("Batches.of_random_functions_are_the_same_on_any_threads_and_ranks", D,
                   data::Permuted, data::Streaming) {
    const auto drawn = [](const data::Dataset& dataset, std::uint64_t seed) {
        return dataset.map_batches(
            [](data::Batch batch, data::Random& random) {
                const auto size = batch.size();
                const auto noise = torch::randint(1000, {size}, random.generator(), torch::kLong);
                batch["x"] = batch["x"] * 1000000 + noise * 1000 + random.below(1000);
                return batch;
            },
            seed);
    };
    for (const auto& plain : {numbers(), data::from_blocks(std::make_shared<Tens>())}) {
        const auto with = [&](int threads, std::int64_t epoch, std::uint64_t seed) {
            return pass<D>(drawn(plain, seed),
                           {.size = 8, .shuffle = true, .threads = threads, .memory_bytes = 2048},
                           0, 1, {.epoch = epoch});
        };
        const auto expected = with(0, 0, 0);
        CHECK(with(0, 0, 0) == expected);
        CHECK(with(1, 0, 0) == expected);
        CHECK(with(4, 0, 0) == expected);
        const auto by_row = [](const std::vector<std::vector<std::int64_t>>& batches) {
            std::vector<std::int64_t> all;
            for (const auto& batch : batches) {
                all.insert(all.end(), batch.begin(), batch.end());
            }
            std::ranges::sort(all);
            return all;
        };
        CHECK(by_row(with(0, 1, 0)) != by_row(expected));
        CHECK(by_row(with(0, 0, 1)) != by_row(expected));

        // Without shuffling, rows of all epochs are the same; the numbers are not.
        const auto in_order = [&](std::int64_t epoch) {
            return pass<D>(drawn(plain, 0), {.size = 8}, 0, 1, {.epoch = epoch});
        };
        CHECK(in_order(0) == in_order(0));
        CHECK(in_order(1) != in_order(0));

        // Micro-batches are the same rows on any number of ranks, and so are their numbers.
        const auto on = [&](int ranks) {
            std::vector<std::vector<std::int64_t>> all;
            for (int rank = 0; rank < ranks; ++rank) {
                const auto read =
                    pass<D>(drawn(plain, 0),
                            {.size = 6, .shuffle = true, .micro_batches = 4, .memory_bytes = 2048},
                            rank, ranks);
                all.insert(all.end(), read.begin(), read.end());
            }
            return by_row(all);
        };
        CHECK(on(2) == on(1));
    }
    data::Random random(5);
    for (int i = 0; i < 1000; ++i) {
        const double number = random.uniform();
        CHECK((number >= 0 && number < 1));
        const std::int64_t below = random.below(3);
        CHECK((below >= 0 && below < 3));
    }
}

} // namespace loader_test
