// SPDX-License-Identifier: Apache-2.0
// Runs that RunConfig::stop ends, on ranks.
#include "support/training.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

using namespace rtrain;
using test::code_of;
using test::contains;

namespace {

int ranks() {
    return launch::ranks().value_or(1);
}

/// What a run has come to on this rank.
struct Trained {
    torch::Tensor weights;
    int steps = 0;   ///< of the run, with those of earlier starts
    int taken = 0;   ///< in this start
    int behind = -1; ///< epochs that the body was left in
    Result result;
};

struct Training {
    const test::Directory& directory;
    std::string name;
    stop::Conditions stop;
    int report_every = 1; ///< steps; 0: behind each epoch only
    int fail_behind = -1; ///< step
    bool with_state = true;

    /// Up to four epochs of six steps.
    template <class Policy = checkpoint::Sync>
    Trained run() const {
        Trained trained;
        Trainer<backend::Mpi, data::Sharded, Policy> trainer(
            {.run = {.name = name, .storage_path = directory.path(), .stop = stop},
             .datasets = {{"train", test::fashion_mnist(6 * 12)}}});
        trained.result = trainer.fit([&](auto& worker) {
            torch::manual_seed(3);
            auto model = worker.prepare(test::Net{});
            torch::optim::SGD optimizer(model->parameters(), 0.1);
            int steps = 0;
            auto state =
                State{}.add("model", model).add("optimizer", optimizer).add("steps", steps);
            auto batches = worker.dataset_shard("train").batches(
                {.size = 12 / worker.size(), .shuffle = true});
            const auto report = [&] {
                // Only rank 0's metrics count.
                const Config metrics{{"steps", steps + 1000 * worker.rank()},
                                     {"loss", worker.rank() == 0 ? 1.0 / steps : 0.0}};
                with_state ? worker.report(metrics, state) : worker.report(metrics);
            };
            for (const int epoch : worker.epochs(4, state)) {
                for (auto& batch : batches) {
                    optimizer.zero_grad();
                    torch::cross_entropy_loss(model(batch["image"]), batch["label"]).backward();
                    optimizer.step();
                    ++steps;
                    ++trained.taken;
                    if (report_every > 0 && steps % report_every == 0) {
                        report();
                    }
                    if (steps == fail_behind) {
                        throw std::runtime_error("behind a step");
                    }
                }
                report();
                trained.behind = epoch;
            }
            trained.weights = test::flat(*model);
            trained.steps = steps;
            // All ranks have come as far.
            at::Tensor most = torch::tensor({steps});
            worker.all_reduce(most, ReduceOp::max);
            CHECK(most.item<int>() == steps);
        });
        return trained;
    }
};

const auto never = [](const Config&) { return false; };

} // namespace

TEST_CASE("Stop.all_ranks_stop_at_the_same_report" * doctest::timeout(120)) {
    const test::Directory directory("stop-conditions");
    const auto stops_behind = [&](const std::string& name, stop::Conditions conditions) {
        const Trained trained = Training{directory, name, std::move(conditions)}.run();
        CHECK(trained.result.metric("steps") == trained.steps);
        return std::pair(trained.steps, trained.result.stop_reason);
    };
    CHECK(stops_behind("iterations", stop::MaxIterations{4}) ==
          std::pair(4, std::string("MaxIterations: 4 reports")));
    CHECK(stops_behind("threshold", stop::Threshold{"loss", 0.2, stop::Direction::at_most}) ==
          std::pair(5, std::string("Threshold: loss is 0.2, at most 0.2")));
    CHECK(stops_behind("early", stop::EarlyStopping{.metric = "loss", .mode = "max"}).first == 4);
    CHECK(stops_behind("plateau", stop::TrialPlateau{.metric = "loss", .std = 0.02}).first == 8);
    CHECK(stops_behind("function", [](const Config& report) { return report.at("steps") == 3; }) ==
          std::pair(3, std::string("a function of RunConfig::stop")));
    CHECK(stops_behind("several", {stop::MaxIterations{9}, stop::MaxIterations{2}}).first == 2);
    CHECK(stops_behind("none", never) == std::pair(24, std::string()));
    CHECK(Result::from_path(directory.path() / "iterations").stop_reason ==
          "MaxIterations: 4 reports");
}

TEST_CASE("Stop.a_run_that_was_broken_off_stops_at_the_same_report" * doctest::timeout(300)) {
    const test::Directory directory("stop-broken");
    const stop::Conditions conditions =
        stop::EarlyStopping{.metric = "loss", .mode = "min", .patience = 2, .min_delta = 0.03};
    const Trained whole = Training{directory, "whole", conditions}.run();
    CHECK(whole.steps == 7);
    CHECK(whole.result.metrics_history.size() == 8); // one behind the first epoch
    for (const int fail_behind : {1, 5, 6, 7}) {
        CAPTURE(fail_behind);
        Training training{directory, "broken-" + std::to_string(fail_behind), conditions};
        training.fail_behind = fail_behind;
        CHECK(code_of([&] { training.run(); }) == "RT-T1");
        training.fail_behind = -1;
        const Trained taken_up = training.run();
        CHECK(taken_up.steps == whole.steps);
        CHECK(taken_up.weights.equal(whole.weights));
        CHECK(taken_up.result.stop_reason == whole.result.stop_reason);
        CHECK(taken_up.result.metrics_history.size() == whole.result.metrics_history.size());
    }
    // Also when the checkpoints are older than the last report, and written in the background.
    for (const int every : {2, 4}) {
        CAPTURE(every);
        Training training{directory, "async-" + std::to_string(every), stop::MaxIterations{4}};
        training.report_every = every;
        const Trained expected = training.run<checkpoint::Async>();
        training.name += "-broken";
        training.fail_behind = 5;
        CHECK(code_of([&] { training.run<checkpoint::Async>(); }) == "RT-T1");
        training.fail_behind = -1;
        const Trained taken_up = training.run<checkpoint::Async>();
        CHECK(taken_up.weights.equal(expected.weights));
        CHECK(taken_up.result.metrics_history.size() == 4);
    }
}

TEST_CASE("Stop.a_run_that_has_stopped_stays_stopped_until_the_condition_says_otherwise" *
          doctest::timeout(120)) {
    const test::Directory directory("stop-stays");
    Training training{directory, "r", stop::MaxIterations{4}};
    const Trained first = training.run();
    for (int start = 0; start < 2; ++start) {
        const Trained again = training.run();
        CHECK(again.taken == 0);
        CHECK(again.weights.equal(first.weights)); // the state is there behind the loop
        CHECK(again.result.metrics_history.size() == 4);
        CHECK(again.result.stop_reason == first.result.stop_reason);
    }
    training.stop = stop::MaxIterations{6};
    const Trained more = training.run();
    CHECK(more.taken == 2);
    CHECK(more.result.metrics_history.size() == 6);
    CHECK(contains(more.result.stop_reason, "6"));
    training.stop = stop::MaxIterations{5}; // it has come further
    const Trained less = training.run();
    CHECK(less.taken == 0);
    CHECK(less.result.metrics_history.size() == 6);
    CHECK(contains(less.result.stop_reason, "5"));
    training.stop = {};
    const Trained free = training.run();
    CHECK(free.steps == 24);
    CHECK(free.result.stop_reason.empty());
}

TEST_CASE("Stop.behind_the_last_report_nothing_is_trained_or_reported" * doctest::timeout(120)) {
    const test::Directory directory("stop-last");
    for (const bool with_state : {true, false}) {
        CAPTURE(with_state);
        Training training{directory, with_state ? "state" : "metrics", stop::MaxIterations{2}};
        training.report_every = 4;
        training.with_state = with_state;
        const Trained trained = training.run(); // at step 4 and behind the first epoch
        CHECK(trained.steps == 6);
        CHECK(trained.behind == 0);
        const Trained again = training.run(); // saved behind the epoch when not in the report
        CHECK(again.taken == 0);
        CHECK(again.weights.equal(trained.weights));
        training.name += "-within";
        training.stop = stop::MaxIterations{3}; // at step 8, the second of an epoch
        const Trained within = training.run();
        CHECK(within.steps == 8);
        CHECK(within.behind == 1);
        CHECK(within.result.metrics_history.size() == 3);
        CHECK(training.run().weights.equal(within.weights));
    }
    // A report behind the loop is one more.
    Trainer<> trainer({.run = {.name = "behind",
                               .storage_path = directory.path(),
                               .stop = stop::MaxIterations{2}}});
    const Result result = trainer.fit([](auto& worker) {
        int steps = 0;
        auto state = State{}.add("steps", steps);
        for ([[maybe_unused]] const int epoch : worker.epochs(5, state)) {
            worker.report({{"steps", ++steps}}, state);
        }
        CHECK(worker.should_stop());
        worker.report({{"accuracy", 0.5}});
    });
    CHECK(result.metrics_history.size() == 3);
    CHECK(result.metric("accuracy") == 0.5);
}

TEST_CASE("Stop.time_that_is_up_ends_the_loop_over_batches" * doctest::timeout(120)) {
    const test::Directory directory("stop-time");
    for (const bool reports : {true, false}) {
        CAPTURE(reports);
        const auto begin = std::chrono::steady_clock::now();
        int taken = 0;
        int began = 0;
        const auto run = [&](double seconds) {
            Trainer<> trainer({.run = {.name = reports ? "reports" : "silent",
                                       .storage_path = directory.path(),
                                       .stop = stop::MaxTime{seconds}},
                               .datasets = {{"train", test::fashion_mnist(12 * 1000)}}});
            return trainer.fit([&](auto& worker) {
                auto model = worker.prepare(test::Net{});
                torch::optim::SGD optimizer(model->parameters(), 0.1);
                auto state = State{}.add("model", model);
                auto batches = worker.dataset_shard("train").batches({.size = 12 / worker.size()});
                for ([[maybe_unused]] const int epoch : worker.epochs(3, state)) {
                    ++began;
                    for (auto& batch : batches) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(20));
                        optimizer.zero_grad();
                        torch::cross_entropy_loss(model(batch["image"]), batch["label"]).backward();
                        optimizer.step();
                        ++taken;
                    }
                    CHECK(worker.should_stop());
                    at::Tensor most = torch::tensor({taken});
                    worker.all_reduce(most, ReduceOp::max);
                    CHECK(most.item<int>() == taken);
                    if (reports) {
                        worker.report({{"taken", taken}}, state);
                    }
                }
            });
        };
        const Result result = run(0.4);
        CHECK(began == 1);
        CHECK(taken > 0);
        CHECK(taken < 1000);
        CHECK(result.stop_reason == "MaxTime: 0.4 s");
        CHECK(result.metrics_history.size() == (reports ? 1 : 0));
        REQUIRE(result.checkpoint);
        const Result again = run(0.4);
        CHECK(began == 1);
        CHECK(again.stop_reason == result.stop_reason);
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
        run(passed.count() + 0.5); // more time
        CHECK(began == 2);
    }
}

TEST_CASE("Stop.loops_of_ones_own_ask" * doctest::timeout(60)) {
    const test::Directory directory("stop-own");
    const auto run = [&](stop::Conditions conditions) {
        int steps = 0;
        Trainer<> trainer({.run = {.name = "r",
                                   .storage_path = directory.path(),
                                   .checkpoint = {.frequency = 100},
                                   .stop = std::move(conditions)}});
        const Result result = trainer.fit([&](auto& worker) {
            auto state = State{}.add("steps", steps);
            worker.restore(state);
            while (!worker.should_stop() && steps < 50) {
                worker.report({{"steps", ++steps}}, state);
            }
        });
        CHECK(result.metric("steps") == steps);
        return std::pair(steps, result.best_checkpoints.size());
    };
    // The report that stops saves, whatever `frequency` says.
    CHECK(run(stop::MaxIterations{7}) == std::pair(7, std::size_t{1}));
    CHECK(run(stop::MaxIterations{7}) == std::pair(7, std::size_t{1}));
    CHECK(run({}) == std::pair(50, std::size_t{1})); // which then goes on from there
}

TEST_CASE("Stop.a_condition_that_cannot_judge_is_an_error_of_all_ranks" * doctest::timeout(60)) {
    const test::Directory directory("stop-error");
    const auto failures = [&](const std::string& name, stop::Conditions conditions, Config metrics,
                              bool with_state) {
        std::string code;
        Trainer<> trainer({.run = {.name = name,
                                   .storage_path = directory.path(),
                                   .stop = std::move(conditions)}});
        try {
            trainer.fit([&](auto& worker) {
                int steps = 0;
                auto state = State{}.add("steps", steps);
                try {
                    with_state ? worker.report(metrics, state) : worker.report(metrics);
                } catch (const ConfigError& error) {
                    code = error.code();
                    throw;
                }
            });
        } catch (const TrainingFailedError& error) {
            CHECK(static_cast<int>(error.worker_failures().size()) == ranks());
            CHECK(Result::from_path(directory.path() / name).metrics_history.empty());
            return code + " " + error.message();
        }
        return std::string();
    };
    for (const bool with_state : {false, true}) {
        const std::string suffix = with_state ? "-state" : "";
        const std::string missing =
            failures("missing" + suffix, stop::EarlyStopping{.metric = "val_loss"}, {{"loss", 1}},
                     with_state);
        CHECK(missing.starts_with("RT-C32 "));
        CHECK(contains(missing, "stop::EarlyStopping"));
        CHECK(contains(missing, "\"val_loss\""));
        const std::string thrown = failures(
            "throws" + suffix, [](const Config& report) { return report.at("loss").as_bool(); },
            {{"loss", 1}}, with_state);
        CHECK(thrown.starts_with("RT-C32 "));
        // What is wrong with the metrics themselves stays what it was.
        CHECK(failures("reserved" + suffix, stop::MaxIterations{3}, {{"date", 1}}, with_state)
                  .starts_with("RT-C10 "));
    }
    CHECK(code_of([&] {
              Trainer<> trainer(
                  {.run = {.stop = stop::EarlyStopping{.metric = "a", .patience = 0}}});
          }) == "RT-C31");
}
