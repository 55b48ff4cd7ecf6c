// SPDX-License-Identifier: Apache-2.0
// Searches over plain functions: the controller, its events, and the threads that run trials.
#include "support/capture.hpp"
#include "support/file_limit.hpp"
#include "support/thrown.hpp"
#include "tune/search_helpers.hpp"

#include <rtrain/testing/scratch.hpp>
#include <rtrain/tune/controller/generations.hpp>
#include <rtrain/tune/record/trial_files.hpp>
#include <rtrain/tune/resources/free_cores.hpp>
#include <rtrain/tune/resources/resources.hpp>
#include <rtrain/tune/schedule/asha.hpp>
#include <rtrain/tune/schedule/hyper_band.hpp>
#include <rtrain/tune/schedule/median_stopping.hpp>
#include <rtrain/tune/schedule/pbt.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <span>
#include <sstream>

#include <sys/wait.h>
#include <unistd.h>

using namespace rtrain;
using test::plan;
using test::reports_of;
using test::search;
using tune::RestoreOptions;
using tune::Trial;
using tune::TrialState;

namespace {

std::string code_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.code();
    }
    return "";
}

/// What of a search does not depend on the clock.
std::string outcome_of(const std::vector<tune::TrialRecord>& trials) {
    std::string text;
    for (tune::TrialRecord trial : trials) {
        trial.time_s = trial.begun_s = trial.ended_s = 0;
        trial.metrics.erase("time_total_s");
        text += json::serialize(to_json(trial)) + "\n";
    }
    return text;
}

} // namespace

TEST_CASE("Controller.a_trial_is_what_its_function_reports_and_returns") {
    const rtrain::testing::ScratchDirectory directory;
    const auto trials = search(plan(3), directory.path(), [](Trial& trial, const Config& config) {
        const double x = config.at("x").to_number<double>();
        if (x == 1) {
            CHECK(trial.report({{"score", 5}, {"note", "hi"}}));
        }
        return x == 1 ? 5 : 10 * x;
    });
    REQUIRE(trials.size() == 3);
    CHECK(reports_of(trials) == std::vector<std::int64_t>{1, 1, 1}); // 5 was reported already
    CHECK(trials[2].metrics.at("score") == 20.0);
    CHECK(trials[1].metrics.at("note") == "hi");
    CHECK(trials[1].metrics.at("training_iteration") == 1);
    for (const auto& trial : trials) {
        CHECK(trial.state == TrialState::terminated);
        CHECK(!trial.early);
    }
    // Nothing is left of trials that need no files.
    CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 6);
}

TEST_CASE("Controller.one_trials_exception_touches_no_other") {
    const rtrain::testing::ScratchDirectory directory;
    const auto trials = search(
        plan(8), directory.path(),
        [](Trial& /*trial*/, const Config& config) -> double {
            const auto x = config.at("x").as_int64();
            if (x == 3) {
                throw std::runtime_error("bad luck");
            }
            if (x == 5) {
                throw 5;
            }
            return static_cast<double>(x);
        },
        4);
    for (const auto& trial : trials) {
        const auto x = trial.config.at("x").as_int64();
        CHECK((trial.state == TrialState::errored) == (x == 3 || x == 5));
        CHECK((trial.error == "bad luck") == (x == 3));
    }
    CHECK(trials.size() == 8);
}

TEST_CASE("Controller.a_failed_trial_runs_again_from_its_state") {
    const rtrain::testing::ScratchDirectory directory;
    auto it = plan(2);
    it.max_failures = 1;
    std::vector<std::string> begun;
    const auto trials = search(it, directory.path(), [&](Trial& trial, const Config& config) {
        int step = trial.state() ? std::stoi(*trial.state()) : 0;
        CHECK(trial.reports() == step);
        begun.push_back(trial.id() + " " + std::to_string(step));
        while (step < 4) {
            ++step;
            if (step == 3 && (config.at("x") == 1 || begun.size() == 1)) {
                throw std::runtime_error("step 3");
            }
            trial.report({{"score", step}}, std::to_string(step));
        }
        return 4.0;
    });
    CHECK(begun == std::vector<std::string>{"00000 0", "00000 2", "00001 0", "00001 2"});
    CHECK(trials[0].state == TrialState::terminated);
    CHECK(trials[0].failures == 1);
    CHECK(trials[0].reports == 4);
    CHECK(trials[1].state == TrialState::errored);
    CHECK(trials[1].failures == 2);
    CHECK(trials[1].error == "step 3");
    CHECK(trials[1].reports == 2);
}

TEST_CASE("Controller.a_run_that_began_to_move_aside_does_so_whole") {
    namespace fs = std::filesystem;
    const rtrain::testing::ScratchDirectory directory;
    const fs::path trial = directory.path() / "trial";
    fs::create_directories(trial / "generation_0");
    fs::create_directories(trial / "generation_1.half" / "checkpoint_000000");
    std::ofstream(trial / "result.json") << "{}";
    tune::internal::finish_moves(trial);
    CHECK(!fs::exists(trial / "generation_1.half"));
    CHECK(fs::exists(trial / "generation_1" / "checkpoint_000000"));
    CHECK(fs::exists(trial / "generation_1" / "result.json"));
    CHECK(!fs::exists(trial / "result.json"));
    tune::internal::finish_moves(trial); // nothing is left to do
    tune::internal::move_aside(trial, "1");
    CHECK(std::distance(fs::directory_iterator(trial), {}) == 2);
    tune::internal::finish_moves(directory.path() / "never begun");
}

TEST_CASE("Controller.stop_conditions_and_schedulers_end_trials") {
    const rtrain::testing::ScratchDirectory directory;
    auto it = plan(8, tune::Asha({.max_t = 16, .grace_period = 1, .reduction_factor = 2}));
    it.judge = [] {
        return [](const Config& report) { return report.at("training_iteration") == 12; };
    };
    const auto trials = search(it, directory.path(), [](Trial& trial, const Config& config) {
        const auto x = config.at("x").as_int64();
        while (trial.report({{"score", 8 - x}})) {
        }
        CHECK(trial.should_stop());
        CHECK(!trial.report({{"score", 1000}})); // counts no more
        return 1000.0;
    });
    CHECK(trials[0].reports == 12);
    CHECK(!trials[0].early);
    int early = 0;
    for (const auto& trial : trials) {
        early += static_cast<int>(trial.early);
        CHECK(trial.metrics.at("score").to_number<double>() <= 8);
    }
    CHECK(early > 3);
}

TEST_CASE("Controller.hyper_band_fills_a_bracket_before_it_compares") {
    // max_t 9 and a factor of 3: brackets of 3, of 5 (halved at 3), of 9 (at 1 and 3).
    const rtrain::testing::ScratchDirectory directory;
    const auto trials =
        search(plan(17, tune::HyperBand({.max_t = 9, .reduction_factor = 3})), directory.path(),
               [](Trial& trial, const Config& config) {
                   for (auto step = trial.reports() + 1;
                        trial.report({{"score", config.at("x")}}, std::to_string(step)); ++step) {
                   }
                   return 0.0;
               });
    std::map<std::int64_t, int> of_length;
    for (const auto& trial : trials) {
        ++of_length[trial.reports];
    }
    CHECK(of_length == std::map<std::int64_t, int>{{1, 6}, {3, 5}, {9, 6}});
    for (const int best : {7, 16}) { // the highest score of its bracket
        CHECK(trials[static_cast<std::size_t>(best)].reports == 9);
    }
}

TEST_CASE("Controller.what_a_trial_does_behind_its_verdict_does_not_count") {
    const rtrain::testing::ScratchDirectory directory;
    auto it = plan(4, tune::Asha({.max_t = 4, .grace_period = 1, .reduction_factor = 2}));
    it.max_failures = 3;
    int begun = 0;
    const auto trials = search(it, directory.path(), [&](Trial& trial, const Config& config) {
        ++begun;
        while (trial.report({{"score", -config.at("x").as_int64()}})) {
        }
        throw std::runtime_error("as it leaves");
        return 0.0;
    });
    CHECK(begun == 4);
    for (const auto& trial : trials) {
        CHECK(trial.state == TrialState::terminated);
        CHECK(trial.failures == 0);
    }
}

TEST_CASE("Controller.a_trial_that_says_it_is_done_is_not_called_again") {
    const rtrain::testing::ScratchDirectory directory;
    auto it = plan(3, tune::HyperBand({.max_t = 9, .reduction_factor = 3}));
    std::map<std::string, int> calls;
    const auto trials = search(it, directory.path(), [&](Trial& trial, const Config& config) {
        ++calls[trial.id()];
        for (auto step = trial.reports() + 1; step <= 9; ++step) {
            if (!trial.report({{"score", config.at("x")}, {"done", step == 9}}, "state")) {
                break;
            }
        }
        return 0.0;
    });
    for (const auto& trial : trials) {
        CHECK(calls[trial.id] == 1);
        CHECK(trial.reports == 9);
        CHECK(!trial.early);
    }
}

TEST_CASE("Controller.two_trials_never_share_a_directory") {
    const rtrain::testing::ScratchDirectory directory;
    auto it = plan(3);
    it.trial_dirname = [](const tune::TrialInfo& info) {
        return "x" + std::to_string(info.config.at("x").as_int64() / 2);
    };
    const auto one = [](Trial&, const Config&) { return 1.0; };
    CHECK(code_of([&] { (void)search(it, directory.path(), one); }) == "RT-U104");
}

TEST_CASE("Restore.a_search_that_a_report_has_ended_goes_on_once_that_is_mended") {
    const rtrain::testing::ScratchDirectory directory;
    const auto band = [] {
        return plan(2, tune::HyperBand({.time_attr = "steps", .max_t = 4, .require_attrs = true}));
    };
    bool tells_steps = false;
    const auto train = [&](Trial& trial, const Config&) {
        Config report{{"score", 1}};
        if (tells_steps) {
            report["steps"] = 1;
        }
        trial.report(report, "state");
        return 1.0;
    };
    {
        tune::SearchDirectory search(band(), directory.path(), {});
        tune::FunctionRunner runner(search.controller(), train, {tune::Place{}},
                                    {.at_ends = [] {}});
        CHECK(code_of([&] { runner.run(); }) == "RT-U64");
        search.controller().flush(); // as happens while other trials run
    }
    tells_steps = true;
    CHECK(search(band(), directory.path(), train).size() == 2);
}

TEST_CASE("Restore.goes_on_behind_a_disk_that_was_full") {
    const rtrain::testing::ScratchDirectory directory;
    tune::EventLog log;
    log.open(directory.path());
    log.add({{"op", "first"}, {"text", std::string(3000, 'x')}});
    log.flush();
    log.add({{"op", "second"}, {"text", std::string(3000, 'y')}});
    {
        const test::FileLimit full(4096);
        CHECK(code_of([&] { log.flush(); }) == "RT-S45");
    }
    std::vector<std::string> read;
    const auto note = [&](const boost::json::object& event) {
        read.emplace_back(event.at("op").as_string());
    };
    (void)tune::EventLog::read(directory.path(), 0, note);
    CHECK(read == std::vector<std::string>{"first"});
    log.flush(); // there is room again
    read.clear();
    (void)tune::EventLog::read(directory.path(), 0, note);
    CHECK(read == std::vector<std::string>{"first", "second"});
}

TEST_CASE("Restore.refuses_options_that_decide_otherwise") {
    const auto train = [](Trial& trial, const Config& config) {
        const double x = config.at("x").to_number<double>();
        for (auto step = trial.reports() + 1; step <= 9; ++step) {
            if (!trial.report({{"score", x}}, "state")) {
                break;
            }
        }
        return x;
    };
    const auto band = [](double max_t) {
        return plan(9, tune::HyperBand({.max_t = max_t, .reduction_factor = 3}));
    };
    const rtrain::testing::ScratchDirectory directory;
    const auto trials = search(band(9), directory.path(), train);
    const std::string state = storage::read_file(directory.path() / tune::tuner_state_file);
    CHECK(code_of([&] { search(band(27), directory.path(), train); }) == "RT-U107");
    CHECK(code_of([&] { search(band(3), directory.path(), train); }) == "RT-U107");
    CHECK(storage::read_file(directory.path() / tune::tuner_state_file) == state);
    CHECK(outcome_of(search(band(9), directory.path(), train)) == outcome_of(trials));
}

TEST_CASE("Restore.another_metric_may_follow_until_one_was_reported") {
    const rtrain::testing::ScratchDirectory directory;
    const auto train = [](Trial& trial, const Config& /*config*/) {
        trial.report({{"accuracy", 1}});
        return 1.0;
    };
    auto it = plan(2);
    it.require_metric = true;
    CHECK(code_of([&] { search(it, directory.path(), train); }) == "RT-U101");
    it.goal.metric = "accuracy"; // as the error has said
    CHECK(search(it, directory.path(), train).size() == 2);
    CHECK(search(it, directory.path(), train).size() == 2);
    CHECK(code_of([&] { search(plan(2), directory.path(), train); }) == "RT-U107");
}

TEST_CASE("Restore.a_trial_that_had_reported_all_reports_nothing_twice") {
    const rtrain::testing::ScratchDirectory directory;
    auto it = plan(1);
    it.max_failures = 1;
    bool fails = true;
    const auto trials = search(it, directory.path(), [&](Trial& trial, const Config& /*config*/) {
        double score = trial.state() ? std::stod(*trial.state()) : 0;
        for (auto step = trial.reports(); step < 3; ++step) {
            score += 1;
            trial.report({{"score", score}}, std::to_string(score));
        }
        if (std::exchange(fails, false)) {
            throw std::runtime_error("behind the last report");
        }
        return score;
    });
    CHECK(trials[0].state == TrialState::terminated);
    CHECK(trials[0].reports == 3);
}

namespace {

/// At every second report, the worse of two trials takes over the better one's state.
tune::SearchPlan duel() {
    return plan(2, tune::Pbt({.time_attr = "training_iteration",
                              .perturbation_interval = 2,
                              .hyperparam_mutations = {{"rate", tune::uniform(0, 1)}},
                              .quantile_fraction = 0.5}));
}

/// One over runs, which keep their states themselves.
struct DuelOfRuns {
    explicit DuelOfRuns(const std::filesystem::path& directory)
        : search(plan(), directory, {}), donor(*controller().next(0)),
          clone(*controller().next(0)) {
        REQUIRE(!controller().next(0)); // else each would pause for another
    }
    static tune::SearchPlan plan() {
        auto it = duel();
        it.keeps_states_itself = true;
        return it;
    }
    tune::Controller& controller() { return search.controller(); }
    bool report(const tune::Assignment& trial, double score) {
        return controller().report(trial.trial, {{"score", score}}, 0, false, 0);
    }
    void save(const tune::Assignment& trial) {
        controller().saved(trial.trial, {"checkpoint_000000", 2, 2.0});
    }

    tune::SearchDirectory search;
    tune::Assignment donor;
    tune::Assignment clone;
};

} // namespace

TEST_CASE("Controller.what_a_run_saves_behind_its_takeover_is_not_its_trials_state") {
    const rtrain::testing::ScratchDirectory directory;
    DuelOfRuns duel(directory.path());
    const auto save = [&](const tune::Assignment& trial) {
        std::filesystem::create_directories(trial.directory / "checkpoint_000000");
        duel.save(trial);
    };
    CHECK(duel.report(duel.donor, 1));
    CHECK(duel.report(duel.donor, 2));
    save(duel.donor);
    CHECK(duel.report(duel.clone, 0));
    CHECK(!duel.report(duel.clone, 0));
    const auto taken_over = duel.controller().record(duel.clone.trial).checkpoint;
    save(duel.clone); // a run saves behind the verdict
    CHECK(duel.controller().record(duel.clone.trial).checkpoint == taken_over);
    duel.controller().returned(duel.clone.trial, 0);
    CHECK(duel.controller().next(0)->reports == 2);
}

TEST_CASE("Restore.a_takeover_that_failed_first_is_heard_again_as_it_was") {
    const rtrain::testing::ScratchDirectory directory;
    {
        DuelOfRuns duel(directory.path());
        CHECK(duel.report(duel.donor, 1));
        CHECK(duel.report(duel.donor, 2));
        duel.save(duel.donor); // is deleted already
        CHECK(duel.report(duel.clone, 0));
        CHECK(duel.report(duel.clone, 0));
        std::filesystem::create_directories(duel.donor.directory / "checkpoint_000000");
        CHECK(duel.report(duel.clone, 0));
        CHECK(!duel.report(duel.clone, 0));
    }
    tune::SearchDirectory again(DuelOfRuns::plan(), directory.path(), {});
    CHECK(again.controller().taken_over().size() == 1);
}

TEST_CASE("Controller.names_of_runs_are_checked_before_they_begin") {
    auto it = plan(1);
    it.trial_name = [](const tune::TrialInfo&) { return "a trial"; };
    CHECK(it.new_record("00000", {}).name == "a trial");
    it.keeps_states_itself = true;
    CHECK(code_of([&] { (void)it.new_record("00000", {}); }) == "RT-U104");
    it.trial_name = [](const tune::TrialInfo&) { return tune::taken_over_directory; };
    CHECK(code_of([&] { (void)it.new_record("00000", {}); }) == "RT-U104");
}

TEST_CASE("Restore.a_search_that_is_over_stays_so") {
    // After the last sample, trials that no other waits for are not paused.
    const tune::PbtOptions pbt{.time_attr = "training_iteration",
                               .perturbation_interval = 2,
                               .hyperparam_mutations = {{"rate", tune::uniform(0, 1)}}};
    const tune::MedianStoppingOptions median{
        .time_attr = "training_iteration", .grace_period = 1, .min_samples_required = 1};
    for (const auto& scheduler :
         {tune::AnyScheduler(tune::Pbt(pbt)), tune::AnyScheduler(tune::MedianStopping(median))}) {
        const rtrain::testing::ScratchDirectory directory;
        std::atomic<int> calls = 0;
        const auto train = [&](Trial& trial, const Config& config) {
            ++calls;
            for (auto step = trial.reports() + 1; step <= 6; ++step) {
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
                if (!trial.report({{"score", config.at("x")}}, "state")) {
                    break;
                }
            }
            return config.at("x").to_number<double>();
        };
        const auto trials = search(plan(4, scheduler), directory.path(), train, 4);
        const int before = calls;
        const auto again = search(plan(4, scheduler), directory.path(), train, 4);
        CHECK(calls == before);
        CHECK(outcome_of(again) == outcome_of(trials));
    }
}

TEST_CASE("Restore.the_time_that_a_trial_has_run_counts") {
    const rtrain::testing::ScratchDirectory directory;
    {
        tune::SearchDirectory search(plan(2), directory.path(), {});
        REQUIRE(search.controller().next(1));
        REQUIRE(search.controller().next(50)); // and the process is killed
    }
    tune::SearchDirectory again(plan(2), directory.path(), {});
    CHECK(again.controller().elapsed_s() >= 50);
}

TEST_CASE("Controller.searches_end_in_time_or_by_stoppers") {
    const rtrain::testing::ScratchDirectory directory;
    auto it = plan(-1);
    it.time_budget_s = 0.2;
    const auto trials = search(
        it, directory.path(), [](Trial&, const Config&) { return 1.0; }, 2);
    CHECK(!trials.empty());
    auto other = plan(-1);
    other.stoppers = [](const tune::TrialReport& report) { return report.trial == "00006"; };
    const rtrain::testing::ScratchDirectory second;
    CHECK(search(other, second.path(), [](Trial&, const Config&) { return 1.0; }).size() == 7);
}

TEST_CASE("Controller.reports_without_the_metric_are_skipped_with_one_warning") {
    const rtrain::testing::ScratchDirectory directory;
    test::Stderr captured;
    const auto trials = search(plan(3, tune::Asha({.max_t = 4})), directory.path(),
                               [](Trial& trial, const Config& config) {
                                   trial.report({{"loss", 1}});
                                   trial.report({{"score", config.at("x").as_int64() + 1}});
                                   trial.report({{"score", "none"}});
                                   return std::optional<double>();
                               });
    CHECK(reports_of(trials) == std::vector<std::int64_t>{3, 3, 3});
    for (const auto& trial : trials) {
        CHECK(trial.state == TrialState::terminated);
    }
    // What searchers hear: each score, and at the end the newest one.
    CHECK(trials[2].config.at("heard") == 31 * 1 % 1'000'003 + 2);
    const std::string text = captured.text();
    CHECK(test::contains(text, "RT-U101"));
    CHECK(text.find("RT-U101") == text.rfind("RT-U101"));
    CHECK(test::contains(text, "loss"));
    CHECK(test::contains(text, "require_metric"));
}

TEST_CASE("Controller.what_is_wrong_with_a_report_ends_the_search") {
    const rtrain::testing::ScratchDirectory directory;
    std::atomic<int> begun{0};
    const auto wrong = [&] {
        auto strict = plan(100);
        strict.require_metric = true;
        search(
            strict, directory.path(),
            [&](Trial& trial, const Config&) {
                ++begun;
                CHECK(!trial.report({{"loss", 1}, {"accuracy", 2}}));
                return 0.0;
            },
            3);
    };
    CHECK_THROWS_WITH_AS(wrong(), doctest::Contains("accuracy"), ConfigError);
    CHECK(begun <= 3);

    const rtrain::testing::ScratchDirectory other; // a search continues after NaN
    const auto trials = search(plan(3), other.path(), [](Trial&, const Config& config) {
        return config.at("x") == 1 ? std::numeric_limits<double>::quiet_NaN() : 1.0;
    });
    CHECK(trials.size() == 3);
    CHECK(trials[1].state == TrialState::terminated);
    CHECK(reports_of(trials) == std::vector<std::int64_t>{1, 1, 1});
    const rtrain::testing::ScratchDirectory reported; // NaN, once
    const auto same = search(plan(1), reported.path(), [](Trial& trial, const Config&) {
        const double nan = std::numeric_limits<double>::quiet_NaN();
        trial.report({{"score", nan}});
        return nan;
    });
    CHECK(reports_of(same) == std::vector<std::int64_t>{1});

    auto named = plan(1);
    named.trial_name = [](const tune::TrialInfo&) { return "a/b"; };
    const rtrain::testing::ScratchDirectory third;
    CHECK(code_of([&] {
              search(named, third.path(), [](Trial&, const Config&) { return 1.0; });
          }) == "RT-U104");
}

namespace {

/// Waits for a trial to end, also while there is none.
struct Waiting : test::Counting {
    [[nodiscard]] tune::Suggestion ask(const std::string& /*trial*/) { return tune::Wait{}; }
};

/// Wants one to run that there is not.
struct Lost : tune::Fifo {
    [[nodiscard]] std::optional<std::string> next(std::span<const tune::Candidate> /*waiting*/) {
        return "nobody";
    }
};

} // namespace

TEST_CASE("Controller.what_a_searcher_or_scheduler_of_ones_own_does_wrong_ends_the_search") {
    const auto searched = [](tune::SearchPlan it) {
        const rtrain::testing::ScratchDirectory directory;
        return code_of([&] {
            search(std::move(it), directory.path(), [](Trial&, const Config&) { return 1.0; });
        });
    };
    auto waiting = plan(3);
    waiting.searcher = Waiting{};
    CHECK(searched(std::move(waiting)) == "RT-U105");
    CHECK(searched(plan(3, Lost{})) == "RT-U102");
    CHECK(searched(plan(3)).empty());
}

TEST_CASE("Restore.runs_the_trials_that_it_is_asked_for") { // Ray's test_tuner_restore
    const auto begin = [](const std::filesystem::path& directory) {
        // Of four trials, the second and fourth fail behind one report.
        const auto trials = search(plan(4), directory, [](Trial& trial, const Config& config) {
            const auto x = config.at("x").as_int64();
            trial.report({{"score", 1}}, "1");
            if (x % 2 == 1) {
                throw std::runtime_error("at first");
            }
            trial.report({{"score", 2}}, "2");
            return 2.0;
        });
        CHECK(reports_of(trials) == std::vector<std::int64_t>{2, 1, 2, 1});
    };
    const auto again = [](Trial& trial, const Config&) {
        const int from = trial.state() ? std::stoi(*trial.state()) : 0;
        trial.report({{"score", from + 1}}, std::to_string(from + 1));
        trial.report({{"score", from + 2}}, std::to_string(from + 2));
        return from + 2.0;
    };
    const auto restored = [&](const RestoreOptions& options) {
        const rtrain::testing::ScratchDirectory directory;
        begin(directory.path());
        const auto moved = directory.path() / "moved";
        std::filesystem::create_directory(moved);
        for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
            if (entry.path() != moved) {
                std::filesystem::rename(entry.path(), moved / entry.path().filename());
            }
        }
        const auto trials = search(plan(4), moved, again, 1, options);
        const auto second = moved / trials[1].directory; // what was saved before stays
        CHECK(storage::read_file(second / "checkpoint_000000/state") == "1");
        return reports_of(trials);
    };
    using Reports = std::vector<std::int64_t>;
    CHECK(restored({.resume_errored = true}) == Reports{2, 3, 2, 3});
    CHECK(restored({.restart_errored = true}) == Reports{2, 2, 2, 2});
    CHECK(restored({}) == Reports{2, 1, 2, 1});
}

TEST_CASE("Controller.a_failed_trial_that_runs_again_is_scheduled_again") {
    const std::vector<tune::AnyScheduler> schedulers{
        tune::HyperBand({.max_t = 9}),
        tune::Asha({.max_t = 9, .grace_period = 1, .reduction_factor = 3}),
        tune::MedianStopping({.grace_period = 1, .min_samples_required = 1}),
        tune::Pbt(
            {.perturbation_interval = 3, .hyperparam_mutations = {{"x", tune::choice({0, 1})}}}),
        tune::Pbt({.perturbation_interval = 3,
                   .hyperparam_mutations = {{"x", tune::choice({0, 1})}},
                   .synch = true})};
    for (std::size_t number = 0; number < schedulers.size(); ++number) {
        CAPTURE(number);
        const rtrain::testing::ScratchDirectory directory;
        bool fails = true;
        const auto train = [&](Trial& trial, const Config& /*config*/) {
            int step = trial.state() ? std::stoi(*trial.state()) : 0;
            while (step < 9) {
                ++step;
                if (fails && trial.id() == "00001" && step == 2) {
                    throw std::runtime_error("step 2");
                }
                if (!trial.report({{"score", 1.0 * step}}, std::to_string(step))) {
                    break;
                }
            }
            return 1.0 * step;
        };
        const auto broken = search(plan(4, schedulers[number]), directory.path(), train);
        REQUIRE(broken[1].state == TrialState::errored);
        fails = false;
        const auto mended = search(plan(4, schedulers[number]), directory.path(), train, 1,
                                   {.resume_errored = true});
        CHECK(mended[1].state == TrialState::terminated);
        CHECK(mended[1].reports > broken[1].reports);
    }
}

TEST_CASE("Controller.a_trial_that_fails_and_runs_again_stays_in_its_population") {
    const rtrain::testing::ScratchDirectory directory;
    auto it = duel();
    it.max_failures = 1;
    tune::SearchDirectory search(std::move(it), directory.path(), {});
    bool has_failed = false;
    const auto train = [&](Trial& trial, const Config& /*config*/) {
        const bool best = trial.id() == "00000";
        for (auto step = trial.reports() + 1; step <= 4; ++step) {
            if (best && step == 3 && !std::exchange(has_failed, true)) {
                throw std::runtime_error("before the other one's decision");
            }
            if (!trial.report({{"score", best ? 10 : 1}}, trial.id())) {
                break;
            }
        }
        return best ? 10.0 : 1.0;
    };
    tune::FunctionRunner(search.controller(), train, {tune::Place{}}, {.at_ends = [] {}}).run();
    search.close();
    CHECK(search.controller().record("00000").failures == 1);
    // The other one's decisions are at its reports 2 and 4. In between the best one has failed, and
    // it has not reported since.
    const auto& taken = search.controller().taken_over();
    REQUIRE(taken.size() >= 2);
    CHECK(taken[1].trial == "00001");
    CHECK(taken[1].exploit.donor == "00000");
    CHECK(taken[1].exploit.iteration == 4);
    CHECK(taken[1].exploit.donor_iteration == 2);
}

TEST_CASE("Restore.goes_on_from_an_older_state_when_the_newest_is_gone") {
    const rtrain::testing::ScratchDirectory directory;
    (void)search(plan(1), directory.path(), [](Trial& trial, const Config&) -> double {
        for (int step = 1; step <= 3; ++step) {
            trial.report({{"score", step}}, std::to_string(step));
        }
        throw std::runtime_error("behind three");
    });
    const auto trial_directory = directory.path() / "trial_00000_x=0,told=0,heard=0";
    std::filesystem::remove_all(trial_directory / "checkpoint_000002");
    const auto trials = search(plan(1), directory.path(),
                               [](Trial& trial, const Config&) {
                                   CHECK(trial.state() == "2");
                                   CHECK(trial.reports() == 2);
                                   trial.report({{"score", 7}}, "7");
                                   return 7.0;
                               },
                               1, {.resume_errored = true});
    CHECK(trials[0].reports == 3);
    CHECK(trials[0].checkpoint == "checkpoint_000003"); // no name is used twice
}

TEST_CASE("Restore.refuses_another_trainable_and_damaged_files") {
    const rtrain::testing::ScratchDirectory directory;
    const auto one = [](Trial&, const Config&) { return 1.0; };
    (void)search(plan(2), directory.path(), one);
    auto other = plan(2);
    other.identity = {{"trainable", "another"}};
    CHECK(code_of([&] { search(other, directory.path(), one); }) == "RT-U107");
    other = plan(2, tune::Pbt({.hyperparam_mutations = {{"x", tune::uniform(0, 1)}}}));
    CHECK(code_of([&] { search(other, directory.path(), one); }) == "RT-U107");
    other = plan(2);
    other.space = {{"x", tune::uniform(0, 1)}};
    CHECK(code_of([&] { search(other, directory.path(), one); }) == "RT-U107");
    other = plan(2);
    other.goal.mode = rtrain::ScoreOrder::min;
    CHECK(code_of([&] { search(other, directory.path(), one); }) == "RT-U107");
    const auto events = directory.path() / tune::EventLog::file_name;
    const std::string text = storage::read_file(events);
    std::ofstream(events) << "rubbish\n" << text;
    CHECK(code_of([&] { search(plan(2), directory.path(), one); }) == "RT-U100");
    const auto first = text.find('\n') + 1; // when the search was begun; then the first trial
    std::ofstream(events) << text.substr(0, first) << text.substr(text.find('\n', first) + 1);
    CHECK(code_of([&] { search(plan(2), directory.path(), one); }) == "RT-U106");
    std::ofstream(events) << text << R"({"op":"rep)"; // a crash
    CHECK(search(plan(2), directory.path(), one).size() == 2);
    std::ofstream(directory.path() / "tuner.json") << "{}";
    CHECK(code_of([&] { search(plan(2), directory.path(), one); }) == "RT-U106");
}

TEST_CASE("Restore.a_search_that_is_killed_again_and_again_loses_and_repeats_no_trial") {
    const auto run = [](const std::filesystem::path& directory,
                        const std::filesystem::path& called) {
        auto it = plan(16, tune::Asha({.max_t = 6, .grace_period = 1, .reduction_factor = 2}));
        return search(it, directory, [&](Trial& trial, const Config& config) {
            std::ofstream(called, std::ios::app) << trial.id() + "\n";
            const auto x = config.at("x").as_int64();
            int step = trial.state() ? std::stoi(*trial.state()) : 0;
            while (step < 6) {
                ++step;
                ::usleep(300);
                if (!trial.report({{"score", (7 * x) % 16 + step}}, std::to_string(step))) {
                    break;
                }
            }
            return static_cast<double>((7 * x) % 16 + step);
        });
    };
    const rtrain::testing::ScratchDirectory whole;
    const std::string expected = outcome_of(run(whole.path() / "s", whole.path() / "called"));
    const rtrain::testing::ScratchDirectory directory;
    std::mt19937 random(7);
    int kills = 0;
    for (;;) {
        const pid_t child = ::fork();
        if (child == 0) {
            (void)run(directory.path() / "s", directory.path() / "called");
            ::_exit(0);
        }
        ::usleep(3'000 + 500 * kills +
                 static_cast<int>(random() % 8'000)); // a slow machine gets on, too
        ::kill(child, SIGKILL);
        int status = 0;
        ::waitpid(child, &status, 0);
        if (WIFEXITED(status)) {
            break;
        }
        REQUIRE(++kills < 1000);
    }
    CHECK(kills > 0);
    CHECK(outcome_of(run(directory.path() / "s", directory.path() / "called")) == expected);
    std::istringstream calls(storage::read_file(directory.path() / "called"));
    std::set<std::string> called;
    for (std::string id; calls >> id;) {
        called.insert(id);
    }
    CHECK(called.size() == 16);
}

TEST_CASE("Controller.a_clone_has_the_donors_bits") {
    const rtrain::testing::ScratchDirectory directory;
    tune::PbtOptions options{.time_attr = "training_iteration",
                             .perturbation_interval = 2,
                             .hyperparam_mutations = {{"rate", tune::uniform(0, 1)}},
                             .seed = 3};
    int taken = 0;
    const auto trials = search(
        plan(4, tune::Pbt(options)), directory.path(),
        [&](Trial& trial, const Config& config) {
            std::string state = trial.state().value_or("");
            if (!state.empty() && state.substr(0, 5) != trial.id()) {
                CHECK(state.substr(5) == std::string(1, '\0') + "s");
                ++taken;
            }
            const double x = config.at("x").to_number<double>();
            for (int step = static_cast<int>(trial.reports()); step < 12; ++step) {
                if (!trial.report({{"score", x * (step + 1)}},
                                  trial.id() + std::string(1, '\0') + "s")) {
                    break;
                }
            }
            return x * 12;
        },
        1);
    CHECK(taken > 0);
    CHECK(trials.size() == 4);
}

namespace {

/// Two trials: number 1, the worse one, reports ten times in the time of 0's two, and takes over
/// its state if it `saves` any.
std::vector<tune::TrialRecord> hare_and_tortoise(const std::filesystem::path& directory, bool saves,
                                                 std::vector<std::string>& began) {
    auto it = plan(2, tune::Pbt({.time_attr = "t",
                                 .perturbation_interval = 10,
                                 .hyperparam_mutations = {{"rate", tune::uniform(0, 1)}},
                                 .quantile_fraction = 0.5}));
    it.judge = [] {
        auto heard = std::make_shared<int>(0);
        return [heard](const Config& /*report*/) { return ++*heard == 14; }; // reports of one trial
    };
    tune::SearchDirectory search(std::move(it), directory, {});
    const auto train = [&](Trial& trial, const Config& config) {
        const bool best = trial.id() == "00000";
        began.push_back(trial.id() + " " + trial.state().value_or("-") + " " +
                        std::to_string(trial.reports()));
        double t = trial.state() ? std::stod(trial.state()->substr(2)) : 0;
        const double rate = config.at("rate").to_number<double>();
        for (bool goes_on = true; goes_on;) {
            t += best ? 5 : 1;
            Config metrics{{"score", best ? 10 : 1}, {"t", t}, {"rate", rate}};
            const std::string state = (best ? "0 " : "1 ") + std::to_string(std::lround(t));
            goes_on = saves || !best ? trial.report(std::move(metrics), state)
                                     : trial.report(std::move(metrics));
        }
        return best ? 10.0 : 1.0;
    };
    const auto files = [](const tune::Assignment& trial) -> tune::FunctionRunner::Files {
        auto its = std::make_shared<tune::TrialFiles>(trial.directory, trial.trial, trial.config,
                                                      trial.reports, trial.taken_over);
        return [its](const Config& report) { its->append(report); };
    };
    tune::FunctionRunner(search.controller(), train, {tune::Place{}},
                         {.at_ends = [] {}, .files = files})
        .run();
    search.close();
    auto trials = search.controller().records();
    for (tune::TrialRecord& trial : trials) {
        trial.directory = (directory / trial.directory).string();
    }
    return trials;
}

std::vector<std::int64_t> numbers_in(const tune::TrialRecord& trial) {
    std::vector<std::int64_t> numbers;
    const auto file = std::filesystem::path(trial.directory) / "result.json";
    for (const Config& line : rtrain::track::read_results(file, 0).reports) {
        numbers.push_back(rtrain::track::number_of(line));
    }
    return numbers;
}

} // namespace

TEST_CASE("Controller.a_clone_goes_on_at_its_donors_report") {
    const rtrain::testing::ScratchDirectory directory;
    std::vector<std::string> began;
    const auto trials = hare_and_tortoise(directory.path(), true, began);
    CHECK(std::count(began.begin(), began.end(), "00001 0 10 2") == 1);
    // What it had reported stays, and the conditions have heard all of it.
    CHECK(numbers_in(trials[1]) ==
          std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 3, 4, 5, 6});
    CHECK(trials[1].reports == 6);
    CHECK(trials[1].donor == "00000");
    std::ifstream table(std::filesystem::path(trials[1].directory) / "progress.csv");
    int rows = -1; // the head
    for (std::string row; std::getline(table, row);) {
        ++rows;
    }
    CHECK(rows == 14);
}

TEST_CASE("Controller.a_trial_whose_donor_has_no_state_goes_on_as_it_is") {
    const rtrain::testing::ScratchDirectory directory;
    std::vector<std::string> began;
    const auto trials = hare_and_tortoise(directory.path(), false, began);
    CHECK(trials[1].donor.empty());
    const auto file = std::filesystem::path(trials[1].directory) / "result.json";
    std::set<std::string> rates;
    for (const Config& line : rtrain::track::read_results(file, 0).reports) {
        rates.insert(boost::json::serialize(line.at("rate")));
    }
    CHECK(rates.size() == 1);
    CHECK(trials[1].reports == 14);
}

TEST_CASE("Controller.states_in_memory_change_nothing") {
    const auto searched = [](std::uint64_t memory, int places) {
        const rtrain::testing::ScratchDirectory directory;
        tune::PbtOptions options{.time_attr = "training_iteration",
                                 .perturbation_interval = 2,
                                 .hyperparam_mutations = {{"rate", tune::uniform(0, 1)}},
                                 .seed = 3};
        tune::SearchDirectory search(plan(6, tune::Pbt(options)), directory.path(), {});
        std::atomic<int> begun_with_state = 0;
        const auto function = [&](Trial& trial, const Config& config) {
            std::string state = trial.state().value_or("");
            if (!state.empty()) {
                ++begun_with_state;
                const auto& from = trial.assignment();
                CHECK(state == storage::read_file(from.directory / from.state / "state"));
            }
            const double x = config.at("x").to_number<double>();
            for (int step = static_cast<int>(trial.reports()); step < 12; ++step) {
                state += trial.id() + std::to_string(step);
                if (!trial.report({{"score", x * (step + 1)}}, state)) {
                    break;
                }
            }
            return x * 12;
        };
        tune::FunctionRunner(search.controller(), function,
                             std::vector<tune::Place>(static_cast<std::size_t>(places)),
                             {.at_ends = [] {}, .memory_for_states = memory})
            .run();
        search.close();
        CHECK(begun_with_state > 0);
        return outcome_of(search.controller().records());
    };
    const std::string without = searched(0, 1);
    CHECK(searched(1 << 20, 1) == without);
    CHECK(searched(200, 1) == without); // some of them
    (void)searched(1 << 20, 4);
}

TEST_CASE("FunctionRunner.a_child_of_a_trial_is_not_the_trial" * doctest::timeout(60)) {
    const rtrain::testing::ScratchDirectory directory;
    std::vector<int> statuses;
    const auto trials = search(plan(2), directory.path(), [&](Trial&, const Config&) -> double {
        const bool throws = statuses.empty();
        const pid_t child = ::fork();
        if (child == 0) {
            if (throws) {
                throw std::runtime_error("bad luck of a child");
            }
            return 100;
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        return 1;
    });
    CHECK(statuses == std::vector<int>{1, 0});
    for (const auto& trial : trials) {
        CHECK(trial.state == TrialState::terminated);
        CHECK(trial.metrics.at("score") == 1.0);
    }
}

TEST_CASE("FunctionRunner.metrics_have_names_that_can_be_shown") {
    const rtrain::testing::ScratchDirectory directory;
    const auto trials =
        search(plan(2), directory.path(), [](Trial& trial, const Config& config) -> double {
            const std::string name = config.at("x").as_int64() == 0 ? "" : "x\ny";
            (void)trial.report({{"score", 1}, {name, 1}});
            return 1;
        });
    for (const auto& trial : trials) {
        CHECK(trial.state == TrialState::errored);
        CHECK(test::contains(trial.error, "RT-C75"));
    }
}

TEST_CASE("States.in_memory_are_those_of_their_files") {
    const rtrain::testing::ScratchDirectory directory;
    const auto file = directory.path() / "state";
    const auto write = [&](const std::string& bytes) {
        std::filesystem::remove(file);
        std::ofstream(file) << bytes;
    };
    tune::internal::StateCache states(10);
    const auto found = [&](const std::filesystem::path& path) {
        const auto bytes = states.find(path);
        return bytes ? **bytes : "";
    };
    write("donor's");
    CHECK(found(file).empty());
    states.keep("1", file, "donor's");
    CHECK(found(file) == "donor's");
    std::filesystem::create_hard_link(file, directory.path() / "clone");
    write("another");
    CHECK(found(file).empty());
    CHECK(found(directory.path() / "clone") == "donor's"); // while the donor's own name is another
    states.keep("2", file, "another");                     // more than there is room for
    CHECK(found(file).empty());
    write("new");
    states.keep("1", file, "new");
    CHECK(found(file) == "new");
    CHECK(found(directory.path() / "clone").empty());
    states.forget("1");
    states.forget("3");
    CHECK(found(file).empty());
}

TEST_CASE("Search.leaves_what_others_read") {
    const rtrain::testing::ScratchDirectory directory;
    const auto root = directory.path() / "bandits";
    const auto run = [&] {
        auto it = plan(4, tune::Pbt({.time_attr = "training_iteration",
                                     .perturbation_interval = 2,
                                     .hyperparam_mutations = {{"rate", tune::uniform(0, 1)}},
                                     .seed = 3}));
        return search(it, root, [](Trial& trial, const Config& config) {
            const double x = config.at("x").to_number<double>();
            for (int step = static_cast<int>(trial.reports()); step < 6; ++step) {
                if (!trial.report({{"score", x * (step + 1)}}, "state")) {
                    break;
                }
            }
            return x * 6;
        });
    };
    const double before = rtrain::detail::seconds_since_1970();
    for (const auto& trial : run()) {
        CHECK(trial.begun_s >= before - 1);
        CHECK(trial.ended_s >= trial.begun_s);
    }
    const std::string policy = storage::read_file(root / tune::pbt_global_file);
    CHECK(std::count(policy.begin(), policy.end(), '\n') > 0);
    const std::string journal = storage::read_file(root / tune::OptunaJournal::file_name);
    const auto lines_with = [&](const std::string& text) {
        int count = 0;
        for (auto at = journal.find(text); at != std::string::npos;
             at = journal.find(text, at + 1)) {
            ++count;
        }
        return count;
    };
    CHECK(lines_with("{\"op_code\":4,") == 4);
    CHECK(lines_with("{\"op_code\":6,") == 4);
    CHECK(lines_with("\"study_name\":\"bandits\"") == 1);
    const std::string page = storage::read_file(root / tune::tune_page_file);
    CHECK(page.find("<h2>Lineage</h2>") != std::string::npos);
    CHECK(page.find("<h2>Best so far</h2>") == std::string::npos); // this one kept no reports

    run(); // is over, and leaves the same again
    CHECK(storage::read_file(root / tune::pbt_global_file) == policy);
    CHECK(storage::read_file(root / tune::OptunaJournal::file_name) == journal);
}

TEST_CASE("Resources.a_trials_process_sees_its_own_of_the_devices_that_are_visible") {
    CHECK(tune::visible_devices({0, 2}, std::nullopt) == "0,2");
    CHECK(tune::visible_devices({0}, "2,3") == "2");
    CHECK(tune::visible_devices({1}, "2,3") == "3");
    CHECK(tune::visible_devices({1, 0}, "GPU-5a,GPU-77") == "GPU-77,GPU-5a");
}

TEST_CASE("Resources.trials_have_cores_of_their_own") {
    tune::internal::FreeCores free({2, 3, 5});
    {
        const auto one = free.take(1);
        CHECK(one.cores() == std::vector<int>{2});
        const auto two = free.take(2);
        CHECK(two.cores() == std::vector<int>{3, 5});
        CHECK(free.take(1).cores().empty()); // not bound
        CHECK(free.take(0).cores().empty());
    }
    CHECK(free.take(2).cores() == std::vector<int>{2, 3});
    CHECK(free.take(4).cores().empty());
    CHECK(tune::own_cores({.cpus = 2}) == 2);
    CHECK(tune::own_cores({.cpus = 0.5}) == 0);
    CHECK(tune::own_cores({.cpus = 1.5}) == 0);
}

TEST_CASE("Resources.threads_of_functions_are_bound") {
    const auto machine = rtrain::detail::cores_of_this_machine();
    const rtrain::testing::ScratchDirectory directory;
    tune::SearchDirectory search(plan(4), directory.path(), {});
    std::atomic<int> bound = 0;
    const auto function = [&](Trial& trial, const Config& /*config*/) {
        bound += static_cast<int>(rtrain::detail::cores_of_this_machine() ==
                                      std::vector<int>{machine.front()} &&
                                  trial.place().cores == std::vector<int>{machine.front()});
        return 1.0;
    };
    tune::FunctionRunner(
        search.controller(), function, std::vector<tune::Place>(1),
        {.at_ends = [] {},
         .cores = machine,
         .cores_of =
             [](const Config& config) { return static_cast<std::size_t>(config.at("x") != 0); }})
        .run();
    search.close();
    CHECK(bound == 3); // all but the first
    CHECK(rtrain::detail::cores_of_this_machine() == machine);
}

TEST_CASE("Resources.places_for_trials") {
    using tune::Place;
    using Gpus = std::vector<std::vector<int>>;
    const auto gpus = [](tune::Resources each, tune::Machine machine, int most = 0) {
        Gpus all;
        for (const Place& place : tune::places_for(each, machine, most)) {
            all.push_back(place.gpus);
        }
        return all;
    };
    CHECK(gpus({}, {4, 0}) == Gpus(4));
    CHECK(gpus({.cpus = 2}, {5, 0}) == Gpus(2));
    CHECK(gpus({.cpus = 0.5}, {2, 0}) == Gpus(4));
    CHECK(gpus({.cpus = 0.1}, {1, 0}) == Gpus(10)); // in spite of rounding
    CHECK(gpus({.cpus = 0}, {3, 0}) == Gpus(3));
    CHECK(gpus({.cpus = 0}, {3, 0}, 8) == Gpus(8));
    CHECK(gpus({}, {4, 0}, 3) == Gpus(3));
    CHECK(gpus({.gpus = 0.5}, {8, 2}) == Gpus{{0}, {0}, {1}, {1}});
    CHECK(gpus({.gpus = 0.4}, {8, 2}) == Gpus{{0}, {0}, {1}, {1}});
    CHECK(gpus({.gpus = 0.25}, {2, 1}) == Gpus{{0}, {0}});
    CHECK(gpus({.gpus = 1}, {8, 2}) == Gpus{{0}, {1}});
    CHECK(gpus({.gpus = 2}, {8, 4}) == Gpus{{0, 1}, {2, 3}});
    CHECK(gpus({.gpus = 2}, {8, 5}, 1) == Gpus{{0, 1}});
    CHECK(gpus({.cpus = 0, .gpus = 1}, {1, 3}) == Gpus{{0}, {1}, {2}});
    for (const tune::Resources& each : {tune::Resources{.cpus = 5},
                                        {.cpus = -1},
                                        {.gpus = 3},
                                        {.gpus = 1.5},
                                        {.cpus = std::nan("")}}) {
        CHECK(code_of([&] { (void)tune::places_for(each, {4, 2}); }) == "RT-U103");
    }
}
