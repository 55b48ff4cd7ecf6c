// SPDX-License-Identifier: Apache-2.0
// What a search leaves behind, and finds again.
#include "support/thrown.hpp"

#include <rtrain/testing/scratch.hpp>
#include <rtrain/tune/record/optuna_journal.hpp>
#include <rtrain/tune/record/policy_log.hpp>
#include <rtrain/tune/record/result_grid.hpp>
#include <rtrain/tune/record/trial_files.hpp>
#include <rtrain/tune/record/trial_table.hpp>
#include <rtrain/tune/record/tune_page.hpp>
#include <rtrain/tune/record/tuner_state.hpp>
#include <rtrain/tune/schedule/pbt_replay.hpp>
#include <rtrain/tune/search/space.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

using namespace rtrain::tune;
using rtrain::Config;
using rtrain::ResultGrid;
using test::code_of;
using test::contains;
using test::message_of;

namespace {

const double infinity = std::numeric_limits<double>::infinity();
const double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Vanishes at its end.
TrialRecord trial(int number, Config config = {}) {
    const std::string id = "t_0000" + std::to_string(number);
    return {.id = id,
            .number = number,
            .name = "f_" + id,
            .config = std::move(config),
            .state = TrialState::terminated,
            .directory = "f_" + id};
}

/// A trial that has reported these scores.
TrialRecord reported(const std::filesystem::path& experiment, int number,
                     const std::vector<double>& scores) {
    TrialRecord record = trial(number, {{"nested", {{"param", number}}}});
    TrialFiles files(experiment / record.directory, record.id, record.config);
    for (const double score : scores) {
        record.metrics = {
            {"training_iteration", ++record.reports}, {"time_total_s", 1.5}, {"score", score}};
        files.append(record.metrics);
    }
    return record;
}

std::string text_of(const std::filesystem::path& file) {
    return rtrain::storage::read_file(file);
}

} // namespace

TEST_CASE("Record.result_grid_has_rays_cases_and_works_after_a_move") {
    const rtrain::testing::ScratchDirectory directory;
    const auto first = directory.path() / "first";
    std::filesystem::create_directory(first);
    const std::vector<TrialRecord> trials{reported(first, 0, {1, 4, 3}),
                                          reported(first, 1, {2, 8, 6})};
    write_tuner_state(first, {.trials = trials});
    std::filesystem::rename(first, directory.path() / "second");
    const auto grid = ResultGrid::from_path(directory.path() / "second");
    REQUIRE(grid.size() == 2);
    CHECK(grid.experiment_path() == directory.path() / "second");
    CHECK(grid[1].path == directory.path() / "second" / "f_t_00001");
    CHECK(grid[1].metrics_history.size() == 3);
    CHECK(grid[1].metric("score") == 6);
    CHECK(grid[1].config.at("nested").at("param") == 1);

    CHECK(grid.get_best_result("score", "max").trial_id == "t_00001");
    CHECK(grid.get_best_result("score", "min").trial_id == "t_00000");
    const auto column = [](const rtrain::TrialTable& table, const char* name) {
        std::vector<double> values;
        for (const auto& row : table.rows) {
            values.push_back(row.at(name).to_number<double>());
        }
        return values;
    };
    CHECK(column(grid.get_dataframe(), "score") == std::vector<double>{3, 6});
    CHECK(column(grid.get_dataframe("score", "max"), "score") == std::vector<double>{4, 8});
    CHECK(column(grid.get_dataframe("score", "min"), "score") == std::vector<double>{1, 2});
    CHECK(column(grid.get_dataframe(), "config/nested/param") == std::vector<double>{0, 1});
    CHECK(contains(grid.get_dataframe().to_csv(), "trial_id,config/nested/param\n"));

    CHECK(code_of([&] { (void)grid.get_best_result(); }) == "RT-U81");
    CHECK(code_of([&] { (void)grid.get_best_result("score"); }) == "RT-U81");
    CHECK(code_of([&] { (void)grid.get_dataframe("score"); }) == "RT-U81");
    CHECK(code_of([&] { (void)grid.get_best_result("score", "max", "first"); }) == "RT-U83");
    const auto unknown = [&] { (void)grid.get_best_result("lost", "max"); };
    CHECK(code_of(unknown) == "RT-U82");
    CHECK(contains(message_of(unknown), "no best trial"));
    CHECK(contains(message_of(unknown), "score, time_total_s"));
}

TEST_CASE("Record.the_best_trial_depends_on_the_scope_and_not_on_nan") {
    const rtrain::testing::ScratchDirectory directory;
    const std::vector<TrialRecord> trials{
        reported(directory.path(), 0, {9, 1, 1, 1, 1, 1}),            // best of all
        reported(directory.path(), 1, {0, 0, 0, 0, 0, 5}),            // last
        reported(directory.path(), 2, {-50, 2, 2, 2, 2, 2}),          // mean of the last 5
        reported(directory.path(), 3, {2.9, 2.9, 2.9, 2.9, -4, 2.9}), // mean
        reported(directory.path(), 4, {not_a_number}),
        reported(directory.path(), 5, {infinity})};
    const ResultGrid grid(directory.path(), trials, {"score", "max"});
    CHECK(grid.get_best_result(std::nullopt, std::nullopt, "last").trial_id == "t_00001");
    CHECK(grid.get_best_result(std::nullopt, std::nullopt, "all").trial_id == "t_00000");
    CHECK(grid.get_best_result("score", "max", "last-5-avg").trial_id == "t_00002");
    CHECK(grid.get_best_result("score", "max", "avg").trial_id == "t_00000");
    CHECK(grid.get_best_result("score", "min", "avg").trial_id == "t_00002");
    CHECK(grid.get_best_result("score", "max", "last", false).trial_id == "t_00005");
}

TEST_CASE("Record.a_trial_that_has_failed_is_the_best_only_among_such") {
    const rtrain::testing::ScratchDirectory directory;
    std::vector<TrialRecord> trials{
        reported(directory.path(), 0, {9}), reported(directory.path(), 1, {not_a_number, 3}),
        reported(directory.path(), 2, {4}), reported(directory.path(), 3, {not_a_number})};
    for (const std::size_t failed : {0, 3}) {
        trials[failed].state = TrialState::errored;
        trials[failed].error = "it broke";
    }
    const ResultGrid grid(directory.path(), trials, {"score", "max"});
    CHECK(grid.get_best_result().trial_id == "t_00002");
    CHECK(grid.get_best_result("score", "min").trial_id == "t_00001");
    CHECK(grid.get_best_result("score", "max", "all").trial_id == "t_00002");
    CHECK(grid.get_dataframe("score", "max").rows[1].at("score") == 3.0); // not the NaN before
    const ResultGrid failed(directory.path(), {trials[3], trials[0]}, {"score", "max"});
    CHECK(failed.get_best_result().trial_id == "t_00000");
}

TEST_CASE("Record.errors_and_ends_are_counted_and_one_trial_is_the_best") {
    const rtrain::testing::ScratchDirectory directory;
    std::vector<TrialRecord> trials;
    for (int number = 0; number < 5; ++number) {
        trials.push_back(trial(number));
        if (number < 3) {
            trials.back().state = TrialState::errored;
            trials.back().error = "it broke";
        }
    }
    const ResultGrid grid(directory.path(), trials, {});
    CHECK(grid.num_errors() == 3);
    CHECK(grid.num_terminated() == 2);
    REQUIRE(grid.errors().size() == 3);
    CHECK(grid.errors()[0].message() == "it broke");
    CHECK(grid.errors()[0].code() == "RT-U88"); // there is no result.json that knows another one
    CHECK(code_of([&] { (void)grid.get_best_result("score", "max"); }) == "RT-U82");
    const ResultGrid one(directory.path(), {trial(7)}, {});
    CHECK(one.get_best_result().trial_id == "t_00007");
}

TEST_CASE("Record.a_trial_comes_back_from_json") {
    TrialRecord one = trial(3, {{"lr", 0.1}, {"net", {{"width", 8}}}});
    one.state = TrialState::errored;
    one.early = true;
    one.reports = 12;
    one.time_s = 1.25;
    one.metrics = {{"loss", 0.5}};
    one.checkpoint = "checkpoint_000002";
    one.error = "no \"memory\"";
    one.failures = 2;
    one.donor = "t_00001";
    const auto saved = rtrain::json::parse(rtrain::json::serialize(to_json(one))).as_object();
    CHECK(to_json(trial_from_json(saved)) == to_json(one));
    for (const auto& item : saved) { // each member is needed
        auto less = saved;
        less.erase(item.key());
        CHECK_THROWS((void)trial_from_json(less));
    }
    auto other = saved;
    other["state"] = "LOST";
    CHECK_THROWS((void)trial_from_json(other));
}

TEST_CASE("Record.a_damaged_state_file_is_said_to_be") {
    const rtrain::testing::ScratchDirectory directory;
    const auto read = [&] { (void)read_tuner_state(directory.path()); };
    CHECK(code_of(read) == "RT-U80");
    write_tuner_state(directory.path(), {.goal = {"loss", "min"}, .trials = {trial(0), trial(1)}});
    const TunerState state = read_tuner_state(directory.path());
    CHECK(state.trials.size() == 2);
    CHECK(state.goal.metric == "loss");
    CHECK(state.goal.mode == rtrain::ScoreOrder::min);
    const auto file = directory.path() / tuner_state_file;
    const std::string whole = text_of(file);
    for (const std::string& damaged : {whole.substr(0, whole.size() / 2), std::string(),
                                       std::string("[]"), std::string("{\"format\":\"other\"}")}) {
        rtrain::storage::replace_file(file, damaged);
        CHECK(code_of(read) == "RT-U85");
    }
    CHECK(contains(message_of(read), "tuner_state.json is damaged"));
}

TEST_CASE("Record.a_plain_trial_leaves_rays_files") {
    const rtrain::testing::ScratchDirectory directory;
    const auto its = directory.path() / "trial";
    {
        TrialFiles files(its, "abc", {{"b", 1}, {"a", {{"c", 2}}}});
        files.append({{"training_iteration", 1}, {"loss", 0.5}});
        files.append({{"training_iteration", 2}, {"loss", not_a_number}, {"later", {{"x", 1}}}});
        files.append({{"training_iteration", 3}, {"loss", 0.1}});
    }
    CHECK(text_of(its / "params.json") == "{\n  \"a\": {\n    \"c\": 2\n  },\n  \"b\": 1\n}\n");
    // Ray loses "later/x", which is not in the first row.
    CHECK(contains(text_of(its / "progress.csv"), "training_iteration,loss,trial_id,later/x\r\n"));
    TrialFiles again(its, "abc", {{"b", 7}}, 2); // the third was not durable
    again.append({{"training_iteration", 3}, {"loss", 0.25}});
    const auto result = rtrain::Result::from_path(its);
    REQUIRE(result.metrics_history.size() == 3);
    CHECK(result.metric("loss") == 0.25);
    CHECK(result.metrics.at("trial_id") == "abc");
    CHECK(result.metrics.at("config").at("b") == 7);
    CHECK(result.metrics_history[0].at("config").at("b") == 1);
    const std::string table = text_of(its / "progress.csv");
    CHECK(std::count(table.begin(), table.end(), '\n') == 4);
}

TEST_CASE("Record.a_policy_log_has_the_donors_past") {
    const rtrain::testing::ScratchDirectory directory;
    log_exploit(directory.path(), {"1", "0", 10, 12, {{"lr", 1}}, {{"lr", 2}}});
    log_exploit(directory.path(), {"2", "1", 20, 22, {{"lr", 2}}, {{"lr", 3}}});
    const std::string global = text_of(directory.path() / "pbt_global.txt");
    CHECK(global == "[\"1\",\"0\",10,12,{\"lr\":1},{\"lr\":2}]\n"
                    "[\"2\",\"1\",20,22,{\"lr\":2},{\"lr\":3}]\n");
    CHECK(text_of(policy_file(directory.path(), "2")) == global);
    PbtReplay replay(text_of(policy_file(directory.path(), "2")));
    CHECK(replay.add("t", {}).at("lr") == 1);
}

TEST_CASE("Record.optunas_journal_has_what_it_was_told") {
    const rtrain::testing::ScratchDirectory directory;
    const Space space{{"lr", loguniform(1e-4, 1e-1)},
                      {"width", randint(1, 9)},
                      {"q", quniform(0, 1, 0.25)},
                      {"kind", choice({"sgd", "adam"})},
                      {"net", Space{{"depth", 3}, {"p", uniform(0, 1)}}},
                      {"n", randn()}};
    const Config config{{"lr", 0.01},
                        {"width", 4},
                        {"q", 0.5},
                        {"kind", "adam"},
                        {"net", {{"depth", 3}, {"p", 0.125}}},
                        {"n", 0.5}};
    const auto file = directory.path() / OptunaJournal::file_name;
    rtrain::storage::replace_file(file, "of the start before\n");
    {
        OptunaJournal journal(directory.path(), "search", {"score", "max"});
        journal.add("a", config, space, 1.5e9);
        journal.report("a", 1, 0.5);
        journal.report("a", 2, not_a_number);
        journal.end("a", TrialEnd::completed, 0.75, 1.5e9 + 1.25);
        journal.add("b", config, space, 1.5e9);
        journal.report("b", 1, 3);
        journal.end("b", TrialEnd::stopped, 3, 1.5e9 + 2);
        journal.add("c", config, space, 1.5e9);
        journal.end("c", TrialEnd::errored, std::nullopt, 1.5e9 + 2);
        journal.add("d", config, space, 1.5e9);
        journal.end("d", TrialEnd::completed, not_a_number, 1.5e9 + 2);
        journal.add("e", config, space, 1.5e9);
    }
    const std::string text = text_of(file);
    const auto count = [&](const std::string& part) {
        int found = 0;
        for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
            ++found;
        }
        return found;
    };
    CHECK(count("{\"op_code\":0,") == 1);
    CHECK(count("{\"op_code\":4,") == 5);
    CHECK(count("\"param_name\":\"net/p\",\"param_value_internal\":1.25E-1") == 5);
    CHECK(count("{\"op_code\":6,") == 4);
    if (const char* const kept = std::getenv("RTRAIN_KEEP_JOURNAL")) { // optuna_test.py
        std::filesystem::copy_file(file, kept);
    }
}

TEST_CASE("Record.the_table_shows_those_that_run_and_the_best") {
    std::vector<TrialRecord> trials;
    for (int number = 0; number < 30; ++number) {
        trials.push_back(trial(number, {{"lr", number / 8.0}, {"net", {{"w", number}}}}));
        trials.back().metrics = {{"loss", number == 3 ? not_a_number : 100.0 - number}};
        trials.back().reports = 1;
    }
    trials[5].state = TrialState::running;
    const std::string table = trial_table(trials, {"loss", "min"}, 200, 3);
    CHECK(contains(table, "Trials: 30 (1 RUNNING, 29 TERMINATED)\n"));
    CHECK(contains(table, "net/w"));
    CHECK(contains(table, "  27 more\n"));
    const auto at = [&](const char* text) { return table.find(text); };
    CHECK(at("f_t_00005") < at("f_t_000029"));
    CHECK(at("f_t_000029") < at("f_t_000028"));
    CHECK(at("f_t_00003 ") == std::string::npos);
    CHECK(contains(table, "0.625"));
    CHECK(trial_table({}, {}, 80) == "Trials: 0\n");
    trials[7].state = trials[8].state = TrialState::errored;
    trials[7].error = "no room\non rank 3 [RT-T1]";
    trials[8].error = "bad luck [RT-X1]";
    const std::string failed = trial_table(trials, {"loss", "min"}, 200, 3);
    CHECK(contains(failed, "t_00007 failed: no room [RT-T1]\n"));
    CHECK(contains(failed, "t_00008 failed: bad luck [RT-X1]\n"));
}

TEST_CASE("Record.the_page_has_its_charts_and_no_script") {
    const rtrain::testing::ScratchDirectory directory;
    TunerState state{.goal = {"score", "max"}};
    for (int number = 0; number < 4; ++number) {
        state.trials.push_back(
            reported(directory.path(), number, {1.0 * number, 4.0 + number, not_a_number}));
        state.trials.back().config["kind"] = number % 2 == 0 ? "a<b" : "c";
    }
    state.trials[1].early = true;
    state.trials[2].error = "<script>";
    log_exploit(directory.path(), {"t_00000", "t_00003", 1, 2, {}, {{"lr", 1}}});
    rtrain::storage::GrowingFile(directory.path() / pbt_global_file).append("[\"t_0000");
    write_tune_page(directory.path(), state, "a & b");
    const std::string page = text_of(directory.path() / tune_page_file);
    const auto count = [&](const std::string& part) {
        int found = 0;
        for (auto at = page.find(part); at != std::string::npos; at = page.find(part, at + 1)) {
            ++found;
        }
        return found;
    };
    CHECK(count("<svg") == 4);
    CHECK(count("</svg>") == 4);
    CHECK(count("<script") == 0);
    CHECK(count("http") == 0);
    CHECK(contains(page, "<h1>a &amp; b</h1>"));
    CHECK(contains(page, "a&lt;b"));
    CHECK(contains(page, "f_t_00003: score 7"));
    CHECK(contains(page, "f_t_00001: score NaN, stopped"));
    CHECK(contains(page, "t_00000 resumes from t_00003 at 2"));
    CHECK(count("\"nan") + count("Mnan") + count("Lnan") + count("inf\"") == 0); // coordinates
    if (const char* const kept = std::getenv("RTRAIN_KEEP_PAGE")) {
        rtrain::storage::replace_file(kept, page);
    }
    // Without anything to show, there is a page, too.
    CHECK(contains(tune_page(directory.path(), {}, "x"), "</html>"));
}
