// SPDX-License-Identifier: Apache-2.0
// The options of a run in JSON.
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/program/options/json_fields.hpp>
#include <rtrain/program/options/run_options.hpp>
#include <rtrain/program/options/stop_options.hpp>
#include <rtrain/program/options/tracker_options.hpp>

#include <doctest/doctest.h>

#include <iterator>
#include <string>
#include <variant>

using namespace rtrain;

TEST_CASE("Options.a_file_sets_what_it_has") {
    const test::Directory directory("options");
    const auto file = directory.path() / "run.json";
    test::write(file, R"({"name": "r", "resume": "never", "failure": {"max_failures": -1,
        "hang": {"enabled": false}}, "checkpoint": {"num_to_keep": null, "score_order": "min"},
        "stop": {"a": 1, "b/c": 2}, "trackers": ["json_lines"], "console": {"live": 0},
        "logging": {"level": "error", "json": true}, "transfer": {"attempts": 2}})");
    RunConfig run{.storage_path = "kept", .checkpoint = {.num_to_keep = 3, .score_attribute = "a"}};
    program::read_run_options(file.string(), run);
    CHECK(run.name == "r");
    CHECK(run.storage_path == "kept");
    CHECK(run.resume == Resume::never);
    CHECK(run.failure.max_failures == -1);
    CHECK(!run.failure.hang.enabled);
    CHECK(!run.checkpoint.num_to_keep);
    CHECK(run.checkpoint.score_attribute == "a");
    CHECK(run.checkpoint.score_order == ScoreOrder::min);
    CHECK(run.trackers.size() == 1);
    CHECK(run.console.live == 0);
    CHECK(run.logging.level == LogLevel(console::Level::error));
    CHECK(run.transfer.attempts == 2);
    REQUIRE(std::distance(run.stop.begin(), run.stop.end()) == 2);
    const auto nested = std::get<stop::Threshold>((run.stop.begin() + 1)->kind());
    CHECK(nested.metric == "b/c");
    CHECK(nested.bound == 2);
}

TEST_CASE("Options.conditions_have_all_fields_of_cpp") {
    const auto all = program::stop_in(
        json::parse(R"([{"kind": "threshold", "metric": "m", "bound": 1, "direction": "at_most"},
        {"kind": "early_stopping", "metric": "m", "mode": "max", "patience": 5, "min_delta": 0.5},
        {"kind": "trial_plateau", "metric": "m", "std": 0.1, "num_results": 2, "grace_period": 3,
         "metric_threshold": 4, "mode": "min"},
        {"kind": "max_iterations", "count": 7}, {"kind": "max_time", "seconds": 8}])"),
        "stop");
    auto it = all.begin();
    CHECK(std::get<stop::Threshold>(it++->kind()).direction == stop::Direction::at_most);
    const auto early = std::get<stop::EarlyStopping>(it++->kind());
    CHECK(early.mode == ScoreOrder::max);
    CHECK(early.patience == 5);
    CHECK(early.min_delta == 0.5);
    const auto plateau = std::get<stop::TrialPlateau>(it++->kind());
    CHECK(plateau.num_results == 2);
    CHECK(plateau.metric_threshold == 4);
    CHECK(plateau.mode == ScoreOrder::min);
    CHECK(std::get<stop::MaxIterations>(it++->kind()).count == 7);
    CHECK(std::get<stop::MaxTime>(it->kind()).seconds == 8);
}

TEST_CASE("Options.trackers_have_kinds") {
    const auto of = [](const char* text) {
        return program::trackers_in(json::parse(text), "trackers").at(0).name();
    };
    CHECK(of(R"(["tensorboard"])") == "TensorBoard's tensorboard");
    CHECK(of(R"([{"kind": "wandb", "directory": "w", "tags": ["a"]}])") == "W&B's w");
    CHECK(of(R"([{"kind": "mlflow", "uri": "http://localhost:1"}])") == "MLflow");
    CHECK(test::code_of([&] { (void)of(R"([{"kind": "comet", "tag": []}])"); }) == "RT-E64");
    CHECK(test::code_of([&] { (void)of(R"("tensorboard")"); }) == "RT-E64");
}

TEST_CASE("Options.unread_fields_are_errors") {
    const boost::json::value json{{"known", 1}, {"knwon", 2}};
    program::JsonFields fields(json, "part");
    int known = 0;
    fields.read("known", known);
    CHECK(known == 1);
    try {
        fields.finish();
        FAIL("no error");
    } catch (const ConfigError& error) {
        CHECK(error.code() == "RT-E64");
        CHECK(error.message().find("\"part/knwon\"; did you mean \"known\"?") != std::string::npos);
    }
}
