// SPDX-License-Identifier: Apache-2.0
// Which starts under a name are of the same run, what becomes of others, and loops over steps.
#include "support/capture.hpp"
#include "support/training.hpp"

#include <rtrain/base/json.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/local.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace rtrain;
using test::code_of;
using test::contains;
using test::message_of;

namespace resume_test {
namespace {

using Local = Trainer<backend::Local>;

data::Datasets rows(float last, int count = 8) {
    auto x = torch::arange(count).to(torch::kFloat);
    x[-1] = last;
    return {{"train", data::from_tensors({{"x", x}})}};
}

/// Trains epochs up to `until`, and fails behind epoch `fails`.
struct Train {
    int until = 2;
    int fails = -1;
    std::vector<int>* epochs = nullptr;

    void operator()(auto& worker, const Config& config) const {
        torch::manual_seed(1);
        auto model = worker.prepare(torch::nn::Linear(1, 1));
        torch::optim::SGD optimizer(model->parameters(), config.at("lr").to_number<double>());
        auto state = State{}.add("model", model).add("optimizer", optimizer);
        auto batches = worker.dataset_shard("train").batches({.size = 4});
        for (const int epoch : worker.epochs(until, state)) {
            for (auto& batch : batches) {
                optimizer.zero_grad();
                model(batch["x"].unsqueeze(1)).sum().backward();
                optimizer.step();
            }
            epochs->push_back(epoch);
            const double lr =
                static_cast<const torch::optim::SGDOptions&>(optimizer.param_groups()[0].options())
                    .lr();
            worker.report({{"lr", lr}}, state);
            if (epoch == fails) {
                throw std::runtime_error("bad luck");
            }
        }
    }
};
struct TrainOtherwise : Train {};

/// What a start of the run "r" has done.
struct Started {
    std::string error;
    std::string said;
    std::vector<int> epochs;
    Result result{};
};

class Runs {
public:
    explicit Runs(const test::Directory& directory) : directory_(directory) {}

    template <class F = Train>
    Started start(Config config, int until = 2, int fails = -1, data::Datasets datasets = rows(7),
                  RunConfig run = {}) const {
        run.name = "r";
        run.storage_path = directory_.path();
        Started started;
        test::Stderr said;
        started.error = message_of([&] {
            Local trainer({.config = std::move(config), .run = run, .datasets = datasets});
            started.result = trainer.fit(F{until, fails, &started.epochs});
        });
        started.said = said.text();
        return started;
    }

private:
    const test::Directory& directory_;
};

/// A service that renames nothing.
struct Service : storage::Local {};

int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        ++found;
    }
    return found;
}

std::set<std::string> names_in(const test::Directory& directory) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
        names.insert(entry.path().filename().string());
    }
    return names;
}

using Epochs = std::vector<int>;

template <class T>
std::string name_of_lambda(T value) {
    const auto lambda = [value](auto&) { return value; };
    return rtrain::detail::function_type_name<decltype(lambda)>();
}

} // namespace

TEST_CASE("Resume.a_lambda_is_named_by_its_place") {
    CHECK(name_of_lambda(1) == name_of_lambda(std::string()));
    const auto first = [](auto&) {};
    const auto second = [](auto&) {};
    CHECK(rtrain::detail::function_type_name<decltype(first)>() !=
          rtrain::detail::function_type_name<decltype(second)>());
    CHECK(rtrain::detail::function_type_name<std::vector<int>>() !=
          rtrain::detail::function_type_name<std::vector<bool>>());
    // Types that name no function, but the policies of the worker that it takes.
    CHECK(rtrain::detail::function_type_name<void (*)(Epochs&)>().empty());
    CHECK(rtrain::detail::function_type_name<void(Epochs&)>().empty());
    CHECK(rtrain::detail::function_type_name<std::function<void(Epochs&)>>().empty());
}

TEST_CASE("Resume.a_different_configuration_is_a_different_run") {
    const test::Directory directory("resume-config");
    const Runs runs(directory);
    const Config config{{"lr", 0.5}, {"net", {{"width", 8}, {"depth", 2}}}};
    REQUIRE(runs.start(config).error.empty());

    const auto refused = runs.start({{"lr", 0.25}, {"net", {{"width", 9}, {"depth", 2}}}});
    CAPTURE(refused.error);
    CHECK(contains(refused.error, "RT-C50"));
    CHECK(contains(refused.error, "\"lr\" was 0.5 and is 0.25"));
    CHECK(contains(refused.error, "\"net/width\" was 8 and is 9"));
    CHECK(!contains(refused.error, "depth"));
    CHECK(contains(refused.error, "Resume::never"));
    CHECK(contains(refused.error, "Resume::always"));
    CHECK(refused.epochs.empty());
    CHECK(contains(runs.start({{"lr", 0.5}}).error, "\"net\" was {"));
    CHECK(contains(test::read(directory.path() / "r" / "params.json"), "5E-1")); // as it was
    // So for a run that has not finished.
    const test::Directory failed("resume-config-failed");
    const Runs others(failed);
    CHECK(contains(others.start(config, 3, 1).error, "bad luck"));
    CHECK(contains(others.start({{"lr", 0.25}}, 3).error, "RT-C50"));
    const auto resumed = others.start(config, 3);
    CHECK(resumed.error.empty());
    CHECK(resumed.epochs == Epochs{2});
    CHECK(!contains(resumed.said, "already finished"));
}

TEST_CASE("Resume.a_finished_run_says_so_and_is_not_trained_again") {
    const test::Directory directory("resume-finished");
    const Runs runs(directory);
    CHECK(runs.start({{"lr", 0.5}}).epochs == Epochs{0, 1});
    const auto again = runs.start({{"lr", 0.5}});
    CHECK(again.error.empty());
    CHECK(again.epochs.empty());
    CHECK(again.result.metrics_history.size() == 2);
    CHECK(count(again.said, "the run \"r\" already finished on 20") == 1);
    // It is the date of the start that has trained, whatever has come since.
    const auto file = directory.path() / "r" / "trainer.json";
    auto saved = rtrain::json::parse(test::read(file)).as_object();
    saved["finished"] = "2001-02-03_04-05-06";
    storage::replace_file(file, rtrain::json::serialize(saved));
    for (int i = 0; i < 2; ++i) {
        CHECK(contains(runs.start({{"lr", 0.5}}).said, "already finished on 2001-02-03"));
    }
    // A function that asks for more gets it.
    CHECK(runs.start({{"lr", 0.5}}, 3).epochs == Epochs{2});
    CHECK(!contains(test::read(file), "2001"));
}

TEST_CASE("Resume.a_different_function_or_data_set_is_a_different_run") {
    const test::Directory directory("resume-function");
    const Runs runs(directory);
    REQUIRE(runs.start({{"lr", 0.5}}).error.empty());
    const auto function = runs.start<TrainOtherwise>({{"lr", 0.5}});
    CHECK(contains(function.error, "RT-C50"));
    CHECK(contains(function.error, "TrainOtherwise"));
    const auto rows_differ = runs.start({{"lr", 0.5}}, 2, -1, rows(70));
    CHECK(contains(rows_differ.error, "RT-C50"));
    CHECK(contains(rows_differ.error,
                   "the data set \"train\" has the same number of rows, but different content"));
    const auto more = runs.start({{"lr", 0.5}}, 2, -1, rows(7, 12));
    CHECK(contains(more.error, "the data set \"train\" had 8 rows and has 12"));
    CHECK(contains(runs.start({{"lr", 0.5}}, 2, -1, {}).error, "is missing now"));
    // One that the run does not use is never opened, and one more is none of its.
    auto lazy = rows(7);
    lazy.emplace("unused", data::lazy([]() -> data::Dataset { throw std::logic_error("read"); }));
    CHECK(runs.start({{"lr", 0.5}}, 3, -1, lazy).error.empty());
}

TEST_CASE("Resume.never_starts_over_and_keeps_the_old_directory") {
    const test::Directory directory("resume-never");
    const Runs runs(directory);
    REQUIRE(runs.start({{"lr", 0.5}}).error.empty());
    RunConfig anew{.resume = Resume::never};
    const auto second = runs.start({{"lr", 0.25}}, 2, -1, rows(7), anew);
    CHECK(second.error.empty());
    CHECK(second.epochs == Epochs{0, 1});
    CHECK(second.result.metric("lr") == 0.25);
    CHECK(contains(second.said, "the run \"r\" starts over"));
    const auto names = names_in(directory);
    REQUIRE(names.size() == 2);
    CHECK(names.begin()->starts_with("r"));
    const auto old = Result::from_path(directory.path() / *names.rbegin());
    CHECK(names.rbegin()->starts_with("r.old-"));
    CHECK(old.metric("lr") == 0.5);
    // A failure within the program resumes; only a start begins anew.
    anew.failure = {.max_failures = 1, .backoff_s = 0};
    int attempts = 0;
    Local trainer({.run = [&] {
        RunConfig run = anew;
        run.name = "r";
        run.storage_path = directory.path();
        return run;
    }()});
    trainer.fit([&](auto& worker) {
        int step = 0;
        auto state = State{}.add("step", step);
        CHECK(worker.restore(state) == (attempts++ > 0));
        ++step;
        worker.report({{"step", step}}, state);
        if (attempts == 1) {
            throw std::runtime_error("bad luck");
        }
        CHECK(step == 2);
    });
    CHECK(attempts == 2);
    CHECK(names_in(directory).size() == 3);
}

TEST_CASE("Resume.always_resumes_whatever_has_changed") {
    const test::Directory directory("resume-always");
    const Runs runs(directory);
    REQUIRE(runs.start({{"lr", 0.5}}).error.empty());
    const auto resumed =
        runs.start<TrainOtherwise>({{"lr", 0.25}}, 3, -1, rows(70), {.resume = "always"});
    CHECK(resumed.error.empty());
    CHECK(resumed.epochs == Epochs{2});
    // The optimizer goes on as it was, which is said.
    CHECK(resumed.result.metric("lr") == 0.5);
    CHECK(contains(resumed.said, "\"optimizer\""));
    CHECK(contains(resumed.said, "lr = 0.5 (the program has 0.25)"));
    CHECK(!contains(resumed.said, "momentum"));
    // From then on it is that run.
    CHECK(runs.start<TrainOtherwise>({{"lr", 0.25}}, 4, -1, rows(70)).epochs == Epochs{3});
    CHECK(contains(runs.start({{"lr", 0.5}}).error, "RT-C50"));
    // Who restores a run says which.
    CHECK(Local::restore(directory.path() / "r", {{.datasets = rows(7)}})
              .fit([](auto& worker) { worker.report({}); })
              .metrics_history.size() == 5);
}

TEST_CASE("Resume.a_start_that_left_nothing_binds_no_other") {
    const test::Directory directory("resume-nothing");
    const Runs runs(directory);
    CHECK(contains(runs.start({{"lr", "large"}}).error, "RT-T1")); // before its first report
    CHECK(runs.start({{"lr", 0.5}}).error.empty());
}

TEST_CASE("Resume.bad_values_are_errors") {
    CHECK(code_of([] { (void)Resume("maybe"); }) == "RT-C51");
    CHECK(code_of([] { Local trainer({.run = {.fast_dev_run = -1}}); }) == "RT-C52");
}

TEST_CASE("Resume.never_keeps_a_run_of_a_storage_service") {
    const test::Directory directory("resume-service");
    const storage::AnyFilesystem files(Service(), "service");
    const std::string runs = (directory.path() / "runs").string();
    const auto train = [&](Resume resume, double lr) {
        return Local({.config = {{"lr", lr}},
                      .run = {.name = "r",
                              .storage_path = runs,
                              .storage_filesystem = files,
                              .resume = resume}})
            .fit([&](auto& worker) {
                int step = 1;
                auto state = State{}.add("step", step);
                worker.report({{"lr", lr}}, state);
            });
    };
    train(Resume::automatic, 1);
    CHECK(code_of([&] { train(Resume::automatic, 2); }) == "RT-C50");
    CHECK(train(Resume::never, 2).metrics_history.size() == 1);
    const auto entries = files.list(runs);
    REQUIRE(entries.size() == 2);
    for (const auto& entry : entries) {
        const auto result = Result::from_path(runs + "/" + entry.name, files);
        CHECK(result.metric("lr") == (entry.name == "r" ? 2 : 1));
        CHECK(result.checkpoint.has_value());
    }
}

TEST_CASE("FastDevRun.goes_through_all_in_short_and_leaves_the_run_alone") {
    const test::Directory directory("fast-dev-run");
    const auto train = [&](int batches, int count) {
        int trained = 0;
        int evaluated = 0;
        int steps = 0;
        int epochs = 0;
        const auto result =
            Local({.run = {.name = "r", .storage_path = directory.path(), .fast_dev_run = batches},
                   .datasets = rows(7, count)})
                .fit([&](auto& worker) {
                    auto state = State{}.add("trained", trained);
                    auto shard = worker.dataset_shard("train");
                    auto training = shard.batches({.size = 2});
                    auto test = shard.batches({.size = 2});
                    for (const int epoch : worker.epochs(3, state)) {
                        for (auto& batch : training) {
                            trained += static_cast<int>(batch.size()) / 2;
                        }
                        const torch::NoGradGuard no_grad;
                        for (auto& batch : test) {
                            evaluated += static_cast<int>(batch.size()) / 2;
                        }
                        worker.report({{"epoch", epoch}}, state);
                        ++epochs;
                    }
                });
        return std::tuple(epochs, trained, evaluated, steps, result);
    };
    for (int i = 0; i < 2; ++i) { // each time anew
        const auto [epochs, trained, evaluated, steps, result] = train(2, 12);
        CHECK(epochs == 1);
        CHECK(trained == 2);
        CHECK(evaluated == 2);
        CHECK(result.metrics_history.size() == 1);
        CHECK(!result.checkpoint);
        CHECK(names_in(directory) == std::set<std::string>{"r.fast_dev_run"});
    }
    CHECK(std::get<0>(train(true, 12)) == 1);
    const auto [epochs, trained, evaluated, steps, result] = train(0, 12);
    CHECK(epochs == 3);
    CHECK(trained == 18);
    CHECK(result.checkpoint.has_value());
}

namespace {

/// Runs worker.steps(n) with a report each third step; what each step saw.
std::vector<std::pair<int, int>> steps(const test::Directory& directory, const std::string& name,
                                       int n, int fails = -1, RunConfig run = {}) {
    std::vector<std::pair<int, int>> seen;
    run.name = name;
    run.storage_path = directory.path();
    (void)code_of([&] {
        Local({.run = run, .datasets = rows(7, 10)}).fit([&](auto& worker) {
            int sum = 0;
            auto state = State{}.add("sum", sum);
            auto batches = worker.dataset_shard("train").batches({.size = 2, .shuffle = true});
            auto all = worker.steps(n, state);
            auto batch = batches.begin();
            for (const int step : all) {
                if (batch == batches.end()) {
                    batch = batches.begin();
                }
                seen.emplace_back(step, (*batch)["x"].sum().template item<int>());
                sum += seen.back().second;
                ++batch;
                if (step == fails) {
                    throw std::runtime_error("bad luck");
                }
                if (step % 3 == 2) {
                    worker.report({{"sum", sum}}, state);
                }
            }
        });
    });
    return seen;
}

} // namespace

TEST_CASE("Steps.resume_behind_the_newest_checkpoint") {
    const test::Directory directory("steps");
    const auto whole = steps(directory, "whole", 13); // two and a half passes over the data
    REQUIRE(whole.size() == 13);
    CHECK(whole.back().first == 12);
    for (const int fails : {3, 5, 8, 10}) {
        CAPTURE(fails);
        const std::string name = "fails-" + std::to_string(fails);
        (void)steps(directory, name, 13, fails);
        const auto rest = steps(directory, name, 13);
        REQUIRE(!rest.empty());
        CHECK(rest.front().first == fails / 3 * 3);
        CHECK(rest == std::vector(whole.begin() + fails / 3 * 3, whole.end()));
        CHECK(Result::from_path(directory.path() / name).metric("sum") ==
              Result::from_path(directory.path() / "whole").metric("sum"));
    }
    CHECK(steps(directory, "whole", 13).size() == 1); // behind the report of step 11
    CHECK(steps(directory, "short", 13, -1, {.fast_dev_run = 2}).size() == 2);
    CHECK(steps(directory, "none", 0).empty());
}

TEST_CASE("Steps.end_by_stop_and_by_conditions") {
    const test::Directory directory("steps-stop");
    CHECK(steps(directory, "condition", 13, -1, {.stop = stop::MaxIterations{2}}).size() == 6);
    const auto stopped = [&] {
        int count = 0;
        Local({.run = {.name = "stop", .storage_path = directory.path()}}).fit([&](auto& worker) {
            auto state = State{}.add("count", count);
            for (const int step : worker.steps(100, state)) {
                ++count;
                if (step == 4) {
                    worker.stop();
                }
                if (step % 3 == 2) {
                    worker.report({{"step", step}}, state);
                }
            }
        });
        return count;
    };
    CHECK(stopped() == 6); // at the report behind step 4
    CHECK(stopped() == 6);
}

TEST_CASE("Steps.that_stop_with_a_batch_in_hand_are_finished") {
    const test::Directory directory("steps-in-hand");
    const auto train = [&] {
        std::vector<int> seen;
        Local({.run = {.name = "r", .storage_path = directory.path()}, .datasets = rows(7, 10)})
            .fit([&](auto& worker) {
                int sum = 0;
                auto state = State{}.add("sum", sum);
                auto batches = worker.dataset_shard("train").batches({.size = 2});
                auto all = worker.steps(100, state);
                auto batch = batches.begin();
                bool is_first = true;
                for (const int step : all) {
                    if (!std::exchange(is_first, false)) {
                        ++batch;
                    }
                    if (batch == batches.end()) {
                        batch = batches.begin(); // in step 5
                    }
                    sum += (*batch)["x"].sum().template item<int>();
                    seen.push_back(step);
                    if (step == 5) {
                        worker.stop();
                        worker.report({{"sum", sum}}, state);
                    }
                }
            });
        return seen;
    };
    CHECK(train() == std::vector{0, 1, 2, 3, 4, 5});
    CHECK(train().empty());
}

TEST_CASE("Steps.have_all_their_batches_when_the_time_is_up") {
    const test::Directory directory("steps-time");
    constexpr int per_step = 7; // more than a pass
    int taken = 0;
    int count = 0;
    Local({.run = {.name = "r", .storage_path = directory.path(), .stop = stop::MaxTime{0.05}},
           .datasets = rows(7, 10)})
        .fit([&](auto& worker) {
            auto state = State{}.add("taken", taken);
            auto batches = worker.dataset_shard("train").batches({.size = 2});
            auto all = worker.steps(1'000'000, state);
            auto batch = batches.begin();
            for (const int step : all) {
                for (int i = 0; i < per_step; ++i, ++batch) {
                    if (batch == batches.end()) {
                        batch = batches.begin();
                    }
                    taken += static_cast<int>((*batch).size()) / 2;
                }
                count = step + 1;
            }
        });
    CHECK(taken == count * per_step);
}

TEST_CASE("Steps.and_epochs_do_not_mix") {
    const test::Directory directory("steps-epochs");
    const auto train = [&](bool in_steps) {
        return message_of([&] {
            Local({.run = {.name = "r", .storage_path = directory.path()}}).fit([&](auto& worker) {
                int count = 0;
                auto state = State{}.add("count", count);
                auto loop = in_steps ? worker.steps(4, state) : worker.epochs(4, state);
                for (const int i : loop) {
                    worker.report({{"i", i}}, state);
                }
            });
        });
    };
    CHECK(train(true).empty());
    const auto message = train(false);
    CHECK(contains(message, "RT-K34"));
    CHECK(contains(message, "worker.steps()"));
}

} // namespace resume_test
