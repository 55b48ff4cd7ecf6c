// SPDX-License-Identifier: Apache-2.0
// What is read ahead on threads comes in order, with its errors, and nothing outlives the loop.
#include <rtrain/data/loader.hpp>

#include <doctest/doctest.h>

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <vector>

using rtrain::data::Loader;

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
