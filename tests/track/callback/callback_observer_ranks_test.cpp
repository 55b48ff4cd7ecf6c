// SPDX-License-Identifier: Apache-2.0
// What the callbacks of a run are told, on ranks.
#include "support/capture.hpp"
#include "support/training.hpp"

#include <rtrain/storage/locate.hpp>
#include <rtrain/track/callback/callback_observer.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace callback_test {

using namespace rtrain;
using test::code_of;
using test::contains;
using track::RunInfo;

namespace {

int ranks() {
    return launch::ranks().value_or(1);
}
bool is_rank_0() {
    return launch::env_int("OMPI_COMM_WORLD_RANK").value_or(0) == 0;
}

using Told = std::vector<std::string>;

/// Writes down what it is told.
struct Recorder {
    Told* told;

    void on_start(const RunInfo& run) const {
        CHECK(run.ranks == ranks());
        CHECK(run.config.at("lr") == 1);
        told->push_back(run.name + " starts behind " + std::to_string(run.position.iteration));
    }
    void after_report(const RunInfo& run, const track::Metrics& metrics,
                      const std::optional<Checkpoint>& checkpoint) const {
        CHECK(static_cast<int>(metrics.size()) == ranks());
        for (int rank = 0; rank < ranks(); ++rank) {
            CHECK(metrics.at(static_cast<std::size_t>(rank)) ==
                  Config{{"rank", rank}, {"steps", run.position.iteration}});
        }
        told->push_back("report " + std::to_string(run.position.iteration) +
                        (checkpoint ? " in " + checkpoint->path.filename().string() : ""));
        CHECK((!checkpoint || std::filesystem::exists(checkpoint->path / "manifest.json")));
    }
    void after_checkpoint(const RunInfo& /*run*/, const Checkpoint& checkpoint) const {
        CHECK(std::filesystem::exists(checkpoint.path / "manifest.json"));
        told->push_back("saved " + checkpoint.path.filename().string());
    }
    void after_exception(const RunInfo& /*run*/, const track::Failures& failures) const {
        for (const auto& [rank, text] : failures) {
            told->push_back("rank " + std::to_string(rank) + ": " + text);
        }
    }
    void on_end(const Result& result) const {
        told->push_back("ends with " + std::to_string(result.metrics_history.size()));
    }
};
struct BackgroundRecorder : Recorder {
    static constexpr bool in_background = true;
};
/// What it does not take is not told to it.
struct EndOnly {
    int* ended;
    void on_end(const Result& /*result*/) const { ++*ended; }
};
struct Broken {
    int* called;
    void after_report(const RunInfo& /*run*/, const track::Metrics& /*metrics*/,
                      const std::optional<Checkpoint>& /*checkpoint*/) const {
        ++*called;
        throw std::runtime_error("no such server");
    }
    void on_end(const Result& /*result*/) const { ++*called; }
};
struct Slow {
    static constexpr bool in_background = true;
    Told* told;
    void after_report(const RunInfo& run, const track::Metrics& /*metrics*/,
                      const std::optional<Checkpoint>& /*checkpoint*/) const {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        told->push_back(std::to_string(run.position.iteration));
    }
};

/// Does not come back from its first call before it may.
struct Waiting {
    static constexpr bool in_background = true;
    std::latch* begun;
    std::latch* goes_on;
    std::atomic<int>* called;
    void after_report(const RunInfo& /*run*/, const track::Metrics& /*metrics*/,
                      const std::optional<Checkpoint>& /*checkpoint*/) const {
        if ((*called)++ == 0) {
            begun->count_down();
            goes_on->wait();
        }
    }
};

/// Five reports, of which the even ones have a state; fails once behind the third, on `bad` ranks.
template <class Policy = checkpoint::Sync>
Result train(const test::Directory& directory, std::vector<track::AnyCallback> callbacks,
             int max_failures, const std::function<bool(int)>& bad) {
    Trainer<backend::Mpi, data::Sharded, Policy> trainer(
        {.config = {{"lr", 1}},
         .run = {.name = "r",
                 .storage_path = directory.path(),
                 .failure = {.max_failures = max_failures, .backoff_s = 0},
                 .callbacks = std::move(callbacks)}});
    return trainer.fit([&](auto& worker) {
        int steps = 0;
        auto state = State{}.add("steps", steps);
        const bool is_new = !worker.restore(state);
        while (steps < 5) {
            ++steps;
            const Config metrics{{"rank", worker.rank()}, {"steps", steps}};
            steps % 2 == 0 ? worker.report(metrics, state) : worker.report(metrics);
            if (steps == 3 && is_new && bad(worker.rank())) {
                throw std::runtime_error("bad luck");
            }
        }
    });
}
const auto nobody = [](int) { return false; };

} // namespace

TEST_CASE("Callback.is_told_of_all_ranks_on_rank_0" * doctest::timeout(60)) {
    const test::Directory directory("callbacks");
    Told told;
    Told behind;
    const Told all{"r starts behind 0",
                   "report 1",
                   "saved checkpoint_000000",
                   "report 2 in checkpoint_000000",
                   "report 3",
                   "rank 0: bad luck",
                   "r starts behind 2",
                   "report 3",
                   "saved checkpoint_000001",
                   "report 4 in checkpoint_000001",
                   "report 5",
                   "ends with 5"};
    train(directory, {Recorder{&told}, BackgroundRecorder{{&behind}}}, 1,
          [](int rank) { return rank == 0; });
    CHECK(told == (is_rank_0() ? all : Told{}));
    CHECK(behind == told);
}

TEST_CASE("Callback.hears_of_the_ranks_that_failed_and_no_run_ends" * doctest::timeout(60)) {
    const test::Directory directory("callbacks-failed");
    Told told;
    CHECK(code_of([&] { train(directory, {Recorder{&told}}, 0, [](int) { return true; }); }) ==
          "RT-T1");
    if (is_rank_0()) {
        REQUIRE(static_cast<int>(told.size()) == 5 + ranks());
        for (int rank = 0; rank < ranks(); ++rank) {
            CHECK(told.at(static_cast<std::size_t>(5 + rank)) ==
                  "rank " + std::to_string(rank) + ": bad luck");
        }
    }
}

TEST_CASE("Callback.of_a_run_that_saves_in_the_background_gets_what_is_there" *
          doctest::timeout(60)) {
    const test::Directory directory("callbacks-async");
    Told told;
    train<checkpoint::Async>(directory, {Recorder{&told}}, 0, nobody);
    if (is_rank_0()) {
        CHECK(std::ranges::count(told, "saved checkpoint_000000") == 1);
        CHECK(std::ranges::count(told, "saved checkpoint_000001") == 1);
        CHECK(std::ranges::count(told, "report 2") == 1); // is not there yet
        CHECK(told.back() == "ends with 5");
    }
}

TEST_CASE("Callback.that_throws_is_named_and_not_called_again" * doctest::timeout(60)) {
    const test::Directory directory("callbacks-broken");
    int called = 0;
    int ended = 0;
    Told told;
    Result result;
    {
        test::Stderr said;
        result = train(directory, {Broken{&called}, Recorder{&told}, EndOnly{&ended}}, 0, nobody);
        const std::string text = said.text();
        CAPTURE(text);
        CHECK(test::count_of(text, "no such server") == (is_rank_0() ? 1 : 0));
        CHECK(contains(text, "Broken") == is_rank_0());
    }
    CHECK(result.metrics_history.size() == 5);
    CHECK(called == (is_rank_0() ? 1 : 0));
    CHECK(ended == (is_rank_0() ? 1 : 0));
    CHECK(told.size() == (is_rank_0() ? 9 : 0));
}

TEST_CASE("Callback.in_the_background_may_lag_ten_thousand_reports" * doctest::timeout(60)) {
    if (!is_rank_0()) {
        return;
    }
    std::latch begun(1);
    std::latch goes_on(1);
    std::atomic<int> called = 0;
    {
        const auto calls = std::make_shared<track::BackgroundCalls>();
        track::CallbackObserver observer(Waiting{&begun, &goes_on, &called}, {}, 1,
                                         storage::locate("/tmp"), calls);
        const std::vector<Config> metrics{{}};
        const std::optional<Checkpoint> none;
        const auto report = [&] {
            observer.reported_by_all({.metrics = metrics, .checkpoint = none});
        };
        report();
        begun.wait(); // it is in its first call
        for (int i = 0; i < 10'025; ++i) {
            report();
        }
        CHECK(calls->waiting() == 10'000);
        test::Stderr said;
        observer.ended({.how = track::Ended::How::failed});
        CHECK(contains(said.text(), "Waiting was too slow and missed 25 reports"));
        goes_on.count_down();
    }
    CHECK(called == 10'001);
}

TEST_CASE("Callback.in_the_background_gets_all_before_fit_returns" * doctest::timeout(60)) {
    const test::Directory directory("callbacks-slow");
    Told told;
    Trainer<> trainer(
        {.run = {.name = "r", .storage_path = directory.path(), .callbacks = {Slow{&told}}}});
    trainer.fit([&](auto& worker) {
        for (int report = 0; report < 200; ++report) {
            worker.report({{"report", report}});
        }
    });
    REQUIRE(told.size() == (is_rank_0() ? 200 : 0));
    for (std::size_t i = 0; i < told.size(); ++i) {
        CHECK(told[i] == std::to_string(i + 1));
    }
}

} // namespace callback_test
