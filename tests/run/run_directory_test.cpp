// SPDX-License-Identifier: Apache-2.0
// What a run notices about its directory: a damaged log, a directory that goes while it trains, a
// score that no report has.
#include "support/capture.hpp"
#include "support/remove_at_once.hpp"
#include "support/training.hpp"

#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/storage/file/file.hpp>

#include <doctest/doctest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

using namespace rtrain;
using test::code_of;
using test::contains;
using test::message_of;
using Local = Trainer<backend::Local>;

namespace {

/// Resumes from its checkpoint, up to `until` reports, every second one with a state.
Result report(const test::Directory& directory, int until) {
    return Local({.run = {.name = "r", .storage_path = directory.path()}}).fit([&](auto& worker) {
        int step = 0;
        auto state = State{}.add("step", step);
        worker.restore(state);
        while (step < until) {
            ++step;
            if (step % 2 == 0) {
                worker.report({{"step", step}}, state);
            } else {
                worker.report({{"step", step}});
            }
        }
    });
}

std::vector<std::int64_t> steps_in(const Result& result) {
    std::vector<std::int64_t> steps;
    for (const auto& report : result.metrics_history) {
        CHECK(report.at("step") == report.at("training_iteration"));
        steps.push_back(report.at("step").as_int64());
    }
    return steps;
}

using Steps = std::vector<std::int64_t>;

/// The files in a run's directory whose names begin so.
std::vector<std::filesystem::path> files(const test::Directory& directory,
                                         const std::string& prefix) {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path() / "r")) {
        if (entry.path().filename().string().starts_with(prefix)) {
            found.push_back(entry.path());
        }
    }
    return found;
}

} // namespace

TEST_CASE("RunDirectory.unnamed_runs_of_one_second_and_process_have_names_of_their_own") {
    // As of containers, in each of which the driver is process 1.
    std::set<std::string> names;
    for (int i = 0; i < 20; ++i) {
        names.insert(rtrain::detail::generated_name());
    }
    CHECK(names.size() == 20);
    CHECK(names.begin()->starts_with("rtrain_run-20"));
    CHECK(!contains(*names.begin() + "-", "-" + std::to_string(::getpid()) + "-"));
    // So are the names of files on their way.
    const auto beside = storage::temporary_beside("/here/file").string();
    CHECK(beside.find(std::to_string(::getpid())) >
          std::string("/here/.rtrain-tmp-01234567").size());
}

TEST_CASE("Log.a_damaged_one_is_set_aside_and_the_run_goes_on") {
    const test::Directory directory("log");
    report(directory, 6);
    const auto log = directory.path() / "r/result.json";
    const std::string whole = test::read(log);
    std::string damaged = whole;
    Steps left;
    std::string where;
    SUBCASE("a line in the middle") {
        damaged[damaged.find("\"step\":3")] = '#';
        left = {1, 2, 4, 5, 6, 7, 8};
        where = "is damaged in line 3: ";
        CHECK(code_of([&] {
                  test::write(log, damaged);
                  (void)Result::from_path(directory.path() / "r");
              }) == "RT-S5");
    }
    SUBCASE("two lines, one of which ends nowhere") {
        damaged[damaged.find("\"step\":1")] = '\0';
        damaged[damaged.find('\n', damaged.find("\"step\":4"))] = ' ';
        left = {2, 3, 6, 7, 8};
        where = "is damaged in line 1: ";
    }
    SUBCASE("the end is cut off") {
        damaged.resize(damaged.find("\"step\":4"));
        left = {1, 2, 3, 6, 7, 8};
        where = "is damaged; it is kept as ";
    }
    SUBCASE("nothing in it can be read") {
        damaged.assign(1000, 'x');
        left = {6, 7, 8};
        where = "is damaged; it is kept as ";
    }
    test::write(log, damaged);
    test::Stderr said;
    const Result result = report(directory, 8);
    const std::string text = said.text();
    CHECK(steps_in(result) == left);
    CHECK(test::count_of(text, "result.json") == 2); // itself, and its new name
    CHECK(contains(text, where));
    const auto kept = files(directory, "result.json.damaged-");
    REQUIRE(kept.size() == 1);
    CHECK(test::read(kept.front()) == damaged);
    CHECK(contains(text, kept.front().filename().string()));

    test::Stderr again;
    CHECK(steps_in(report(directory, 10)).size() == left.size() + 2);
    CHECK(contains(again.text(), "without")); // some are still missing
}

TEST_CASE("Log.a_missing_one_is_told_of") {
    const test::Directory directory("missing");
    report(directory, 6);
    std::filesystem::remove(directory.path() / "r/result.json");
    test::Stderr said;
    CHECK(steps_in(report(directory, 8)) == Steps{6, 7, 8});
    const std::string text = said.text();
    CHECK(contains(text, "result.json is missing"));
    CHECK(contains(text, "without 5 of its reports"));
    CHECK(files(directory, "result.json.damaged-").empty());
}

TEST_CASE("Log.what_a_crash_has_damaged_is_no_news") {
    const test::Directory directory("crash");
    report(directory, 5);
    const auto log = directory.path() / "r/result.json";
    std::string text = test::read(log);
    text[text.find("\"step\":5")] = '#'; // behind the newest checkpoint
    test::write(log, text + "{\"half");
    test::Stderr said;
    CHECK(steps_in(report(directory, 6)) == Steps{1, 2, 3, 4, 5, 6});
    CHECK(!contains(said.text(), "result.json"));
    CHECK(files(directory, "result.json.damaged-").empty());
}

TEST_CASE("Directory.that_goes_while_the_run_trains_is_noticed_at_the_next_report") {
    const test::Directory directory("gone");
    const auto run = directory.path() / "r";
    enum class What { of_metrics, of_state, of_files };
    const auto code_after = [&](auto&& happens, What what) {
        std::filesystem::remove_all(run);
        std::filesystem::remove_all(directory.path() / "moved");
        std::string code;
        const auto message = message_of([&] {
            Local({.run = {.name = "r", .storage_path = directory.path()}}).fit([&](auto& worker) {
                int step = 1;
                auto state = State{}.add("step", step);
                worker.report({{"step", step}}, state);
                worker.report({{"step", step}});
                happens();
                const auto mine = directory.path() / "mine";
                std::filesystem::create_directories(mine);
                test::write(mine / "file", "of mine");
                try {
                    if (what == What::of_metrics) {
                        worker.report({{"step", 2}});
                    } else if (what == What::of_state) {
                        worker.report({{"step", 2}}, state);
                    } else {
                        worker.report({{"step", 2}}, Checkpoint::from_directory(mine));
                    }
                } catch (const Error& error) {
                    code = error.code();
                    throw;
                }
            });
        });
        CHECK(contains(message, "RT-T1"));
        CHECK(contains(message, code));
        return code;
    };
    const auto make_anew = [&] {
        std::filesystem::create_directories(run);
        test::write(run / "result.json", "of somebody else\n");
        test::write(run / checkpoint::Staging::attempt_file, "of somebody else");
    };
    for (const What what : {What::of_metrics, What::of_state, What::of_files}) {
        CAPTURE(static_cast<int>(what));
        test::Stderr said;
        CHECK(code_after([&] { test::remove_at_once(run); }, what) == "RT-S17");
        CHECK(!std::filesystem::exists(run)); // nobody makes half of it anew
        CHECK(code_after([&] { std::filesystem::rename(run, directory.path() / "moved"); }, what) ==
              "RT-S17");
        CHECK(!std::filesystem::exists(run));
        CHECK(code_after(
                  [&] {
                      test::remove_at_once(run);
                      make_anew();
                  },
                  what) == "RT-S17");
        CHECK(test::read(run / "result.json") == "of somebody else\n");
        CHECK(!std::filesystem::exists(run / "error.json"));
        CHECK(code_after(
                  [&] {
                      for (const auto& entry : std::filesystem::directory_iterator(run)) {
                          std::filesystem::remove_all(entry.path());
                      }
                  },
                  what) == "RT-S17");
        CHECK(code_after([&] { std::filesystem::remove(run / "result.json"); }, what) == "RT-S18");
        // Another attempt at the run has begun.
        CHECK(code_after([&] { test::write(run / checkpoint::Staging::attempt_file, "another"); },
                         what) == "RT-S16");
    }
}

TEST_CASE("Directory.that_goes_while_a_checkpoint_is_written_is_noticed") {
    const test::Directory directory("background");
    std::string code;
    CHECK(code_of([&] {
              Trainer<backend::Local, data::Sharded, checkpoint::Async>(
                  {.run = {.name = "r", .storage_path = directory.path()}})
                  .fit([&](auto& worker) {
                      auto tensor = torch::zeros({1000});
                      auto state = State{}.add("tensor", tensor);
                      worker.report({}, state);
                      test::remove_at_once(directory.path() / "r");
                      try {
                          worker.report({}, state);
                      } catch (const Error& error) {
                          code = error.code();
                          throw;
                      }
                  });
          }) == "RT-T1");
    CHECK(code == "RT-S17");
}

TEST_CASE("Report.none_in_a_whole_run_and_nan_are_told_once") {
    const test::Directory directory("reports");
    int number = 0;
    const auto told = [&](const std::vector<Config>& reports) {
        test::Stderr said;
        Local({.run = {.name = "r" + std::to_string(++number),
                       .storage_path = directory.path(),
                       .console = {.verbose = 0}}})
            .fit([&](auto& worker) {
                for (const Config& metrics : reports) {
                    worker.report(metrics);
                }
            });
        return said.text();
    };
    CHECK(test::count_of(told({}), "has returned without a report") == 1);
    const double nan = std::nan("");
    const std::string text =
        told({{{"loss", 0.5}, {"other", nan}}, {{"loss", nan}}, {{"loss", nan}, {"other", nan}}});
    CHECK(test::count_of(text, "is NaN") == 2);
    CHECK(contains(text, "metric \"other\" of report 1 is NaN"));
    CHECK(contains(text, "metric \"loss\" of report 2 is NaN"));
    CHECK(told({{{"loss", 0.5}}}).empty());
}

TEST_CASE("Score.that_no_report_has_is_told_once") {
    const test::Directory directory("score");
    int number = 0;
    const auto told = [&](const std::optional<std::string>& attribute, const Config& metrics) {
        test::Stderr said;
        CheckpointConfig config;
        config.score_attribute = attribute;
        Local({.run = {.name = "r" + std::to_string(++number),
                       .storage_path = directory.path(),
                       .checkpoint = config,
                       .console = {.verbose = 0}}})
            .fit([&](auto& worker) {
                int step = 0;
                auto state = State{}.add("step", step);
                for (; step < 3; ++step) {
                    worker.report(metrics, state);
                }
            });
        return said.text();
    };
    const Config metrics{{"loss", 0.5}, {"deep", {{"er", 1}}}, {"text", "high"}};
    for (const char* attribute : {"lost", "deep", "deep/est", "text"}) {
        const std::string text = told(attribute, metrics);
        CHECK(test::count_of(text, "score_attribute is \"" + std::string(attribute) + '"') == 1);
        CHECK(contains(text, "\"loss\""));
    }
    CHECK(told("loss", metrics).empty());
    CHECK(told("deep/er", metrics).empty());
    CHECK(told("time_total_s", metrics).empty());
    CHECK(told(std::nullopt, metrics).empty());
    CHECK(!contains(told("loss", {{"loss", std::nan("")}}), "score_attribute is"));
}
