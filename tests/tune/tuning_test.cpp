// SPDX-License-Identifier: Apache-2.0
// Searches over trainers, on real processes: what a trial does touches no other, and a search that
// was killed goes on.
#include "support/capture.hpp"
#include "support/programs.hpp"

#include <rtrain/train/generators.hpp>
#include <rtrain/tune/processes/trial_task.hpp>
#include <rtrain/tune/resources/this_machine.hpp>
#include <rtrain/tuner.hpp>

#include <doctest/doctest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <latch>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace rtrain;
using test::contains;
using test::count;
using test::Directory;
using test::Ended;

namespace {

Ended tuned(const std::string& variant, int ranks, const Directory& storage,
            const std::string& environment = "") {
    return test::run("env " + environment + " timeout 120 " RTRAIN_TUNING " " + variant + " " +
                     std::to_string(ranks) + " " + storage.path().string());
}

/// The rank 0 that each trial was called in, call by call.
std::vector<std::pair<int, int>> calls(const Directory& storage) {
    std::vector<std::pair<int, int>> calls;
    std::istringstream lines(test::read(storage.path() / "calls"));
    int trial = 0;
    for (int pid = 0; lines >> trial >> pid;) {
        calls.emplace_back(trial, pid);
    }
    return calls;
}

/// In how many processes.
std::size_t processes(const Directory& storage, const std::set<int>& trials) {
    std::set<int> pids;
    for (const auto& [trial, pid] : calls(storage)) {
        if (trials.contains(trial)) {
            pids.insert(pid);
        }
    }
    return pids.size();
}

/// Reports that the search has counted.
int reports_heard(const Directory& storage, const std::string& trial) {
    const auto events = test::read(storage.path() / "search" / "tuner_events.jsonl");
    return count(events, R"("op":"report","trial":")" + trial + '"');
}

bool nothing_is_left(const Directory& storage) {
    for (int tries = 0; tries < 100; ++tries) {
        if (test::run("pgrep -f 'tuning .*" + storage.path().filename().string() + "$'")
                .output.empty()) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
}

} // namespace

TEST_CASE("Tuning.trials_are_runs_beside_other_fits") {
    for (const int ranks : {1, 2}) {
        const Directory storage("tuning-" + std::to_string(ranks));
        const auto ended = tuned("plain", ranks, storage);
        CAPTURE(ended.output);
        CHECK(ended.status == 0);
        const std::string n = std::to_string(ranks);
        CHECK(contains(ended.output, "TRIAL 00000 TERMINATED 6 0 " + n + " 5"));
        CHECK(contains(ended.output, "TRIAL 00001 TERMINATED 6 6 " + n + " 5"));
        CHECK(contains(ended.output, "TRIAL 00002 TERMINATED 6 12 " + n + " 5"));
        CHECK(contains(ended.output, "BEST 2"));
        CHECK(contains(ended.output, "END 42 48"));
        CHECK(contains(ended.output, "Trials: 3 (3 TERMINATED)"));
        CHECK(!contains(ended.output, "[trial_00000] rtrain 0")); // of a trial's run, at 1
        CHECK(count(ended.output, "BEGIN") == 1); // trials print what they print, not main()
        CHECK(nothing_is_left(storage));
    }
}

TEST_CASE("Tuning.a_trials_death_or_exception_touches_no_other") {
    for (const char* how : {"throw", "die"}) {
        const Directory storage(std::string("tuning-") + how);
        const auto ended = tuned(how, 2, storage);
        CAPTURE(ended.output);
        CHECK(contains(ended.output, "TRIAL 00000 TERMINATED 6 0 2 5"));
        CHECK(contains(ended.output, "TRIAL 00001 ERROR 2 2 2 5"));
        CHECK(contains(ended.output, "TRIAL 00002 TERMINATED 6 12 2 5"));
        CHECK(contains(ended.output, "END 42 48"));
        CHECK(nothing_is_left(storage));
    }
}

TEST_CASE("Tuning.a_run_forgives_its_trial") {
    const Directory storage("tuning-die-once");
    const auto ended = tuned("die-once", 1, storage);
    CAPTURE(ended.output);
    CHECK(contains(ended.output, "TRIAL 00001 TERMINATED 6 6 1 5"));
    CHECK(reports_heard(storage, "00001") == 6); // each once
    // One place: the second trial is begun by the ranks of the first and ended by others, which
    // take the third.
    CHECK(processes(storage, {0, 1}) == 2);
    CHECK(processes(storage, {1, 2}) == 2);
    CHECK(processes(storage, {0, 1, 2}) == 2);
}

TEST_CASE("Tuning.ranks_take_trial_after_trial") {
    for (const int ranks : {1, 2}) {
        const Directory storage("tuning-reuse-" + std::to_string(ranks));
        const auto ended = tuned("used", ranks, storage);
        CAPTURE(ended.output);
        const auto n = static_cast<std::size_t>(ranks);
        CHECK(processes(storage, {0, 1, 2}) == n);
        const Directory other("tuning-new-" + std::to_string(ranks));
        const auto anew = tuned("new", ranks, other);
        CAPTURE(anew.output);
        CHECK(processes(other, {0, 1, 2}) == 3 * n);
        // What a trial prints bears its name; its function and random numbers are as at the first.
        const auto printed = [&](const std::string& x) {
            const std::string line = "[trial_0000" + x + "] [rank 0] CALL 1 of " + x + ", ";
            const auto at = ended.output.find(line);
            return at == std::string::npos
                       ? line + "is missing"
                       : ended.output.substr(at + line.size(), std::string("0.12345").size());
        };
        CHECK(printed("1") == printed("0"));
        CHECK(printed("2") == printed("0"));
        CHECK(!contains(ended.output, "end of run"));
        CHECK(nothing_is_left(storage));
    }
}

TEST_CASE("Tuning.trials_have_cores_of_their_own") {
    if (rtrain::detail::cores_of_this_machine().size() < 2) {
        MESSAGE("skipped: there is one core");
        return;
    }
    const Directory storage("tuning-cores");
    const auto ended = tuned("cores", 1, storage);
    CAPTURE(ended.output);
    CHECK(contains(ended.output, "TRIAL 00002 TERMINATED 6 12 1 5"));
    std::istringstream lines(test::read(storage.path() / "cores"));
    std::set<std::string> cores;
    for (std::string line; std::getline(lines, line);) {
        CHECK(count(line, " ") == 1);
        cores.insert(line);
    }
    CHECK(cores.size() == 2);
    const Directory functions("tuning-function-cores");
    CHECK(count(tuned("function-cores", 1, functions).output, "CORES 1\n") == 2);
}

TEST_CASE("Tuning.a_trial_has_as_many_cores_as_ranks") {
    if (rtrain::detail::cores_of_this_machine().size() < 2) {
        MESSAGE("skipped: there is one core");
        return;
    }
    const Directory storage("tuning-cores-scaling");
    const auto ended = tuned("cores-scaling", 1, storage);
    CAPTURE(ended.output);
    std::istringstream lines(test::read(storage.path() / "cores"));
    std::vector<int> of_ranks;
    for (std::string line; std::getline(lines, line);) {
        of_ranks.push_back(std::stoi(line));
        CHECK(count(line, " ") == of_ranks.back());
    }
    CHECK(of_ranks == std::vector<int>{1, 2, 2});
}

TEST_CASE("Tuning.generators_begin_anew") { // two of the CPU stand for those of GPUs
    const std::vector<at::Generator> all{at::detail::createCPUGenerator(1),
                                         at::detail::createCPUGenerator(2)};
    const auto draw = [&] {
        return torch::stack({torch::rand({4}, all[0]), torch::rand({4}, all[1])});
    };
    (void)draw(); // which may be amid their numbers
    rtrain::detail::Generators generators(all);
    const torch::Tensor first = draw();
    CHECK(!torch::equal(draw(), first));
    generators.restore();
    CHECK(torch::equal(draw(), first));
    const auto own = rtrain::detail::own_generators();
    CHECK(own.size() == 1 + static_cast<std::size_t>(torch::cuda::device_count()));
    CHECK(own.front() == at::detail::getDefaultCPUGenerator());
}

TEST_CASE("Tuning.trials_of_a_function_inherit_no_settings_of_torch") {
    const Directory storage("tuning-settings");
    std::atomic<int> fresh{0};
    const auto leave_changed = [&](tune::Trial&, const Config&) {
        fresh += c10::GradMode::is_enabled() && torch::zeros({1}).scalar_type() == torch::kFloat &&
                 !at::autocast::is_autocast_enabled(at::kCPU);
        c10::GradMode::set_enabled(false);
        at::autocast::set_autocast_enabled(at::kCPU, true);
        torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
        return 1.0;
    };
    Tuner(leave_changed, {.param_space = {{"x", 1}},
                          .tune = {.num_samples = 5, .max_concurrent_trials = 1},
                          .run = {.name = "one", .storage_path = storage.path()}})
        .fit();
    CHECK(fresh == 5);
    CHECK(c10::GradMode::is_enabled());
    CHECK((torch::zeros({1}).scalar_type() == torch::kFloat));
}

TEST_CASE("Tuning.trials_that_share_a_generator_are_warned_about") {
    const Directory storage("tuning-random");
    const auto said = [&](const std::string& name, int at_once, bool draws) {
        std::latch together(at_once); // of the first trials
        std::atomic<int> trials{0};
        const test::Stderr text;
        const auto function = [&](tune::Trial&, const Config&) {
            if (trials++ < at_once) {
                together.arrive_and_wait();
            }
            if (draws) {
                torch::manual_seed(1);
                return torch::rand({1}).item<double>();
            }
            return 1.0;
        };
        Tuner(function, {.param_space = {{"x", 1}},
                         .tune = {.num_samples = 4, .max_concurrent_trials = at_once},
                         .run = {.name = name, .storage_path = storage.path()},
                         .resources_per_trial = {.cpus = 0.01}})
            .fit();
        return count(text.text_so_far(), "share torch's default generator");
    };
    CHECK(said("two", 2, true) == 1);
    CHECK(said("one", 1, true) == 0);
    CHECK(said("calm", 2, false) == 0);
}

TEST_CASE("Tuning.ranks_that_die_between_trials_harm_none") {
    const Directory storage("tuning-idle");
    const auto ended = tuned("idle", 2, storage);
    CAPTURE(ended.output);
    CHECK(contains(ended.output, "TRIAL 00000 TERMINATED 6 0 2 5"));
    CHECK(contains(ended.output, "TRIAL 00001 TERMINATED 6 6 2 5"));
    CHECK(nothing_is_left(storage));
}

TEST_CASE("Tuning.a_resize_that_is_due_between_two_trials_is_the_next_ones") {
    const Directory storage("tuning-resize");
    const auto ended = tuned("resize", 1, storage);
    CAPTURE(ended.output);
    CHECK(contains(ended.output, "TRIAL 00000 TERMINATED 6 0 1 5"));
    CHECK(contains(ended.output, "there is room for more ranks"));
    CHECK(contains(ended.output, "TRIAL 00001 TERMINATED")); // when it has two ranks
    CHECK(contains(ended.output, "TRIAL 00002 TERMINATED 6 12 2 5"));
    CHECK(processes(storage, {0, 1, 2}) == 3); // one, and two that take the third trial as well
    CHECK(nothing_is_left(storage));
}

TEST_CASE("Tuning.verdicts_reach_the_ranks") {
    const Directory storage("tuning-stop");
    const auto ended = tuned("stop", 1, storage);
    CAPTURE(ended.output);
    CHECK(contains(ended.output, "TRIAL 00000 TERMINATED 2 0 1 5"));
    CHECK(contains(ended.output, "TRIAL 00002 TERMINATED 2 4 1 5"));
}

TEST_CASE("Tuning.a_trial_that_ignores_its_verdict_is_ended") {
    const Directory storage("tuning-ignore");
    const auto temporary = storage.path() / std::string(120, 't'); // too long for a Unix socket
    std::filesystem::create_directory(temporary);
    const auto ended = tuned("ignore", 2, storage, "TMPDIR=" + temporary.string());
    CAPTURE(ended.output);
    CHECK(contains(ended.output, "TRIAL 00000 TERMINATED 2 0 2 5"));
    CHECK(contains(ended.output, "TRIAL 00002 TERMINATED 2 4 2 5"));
    CHECK(contains(ended.output, "its processes are ended"));
    CHECK(nothing_is_left(storage));
}

TEST_CASE("Tuning.limits_of_time_act_between_two_reports") {
    for (const char* variant : {"time", "budget"}) {
        const Directory storage(std::string("tuning-") + variant);
        const auto ended = tuned(variant, 1, storage);
        CAPTURE(ended.output);
        CHECK(contains(ended.output, "TRIAL 00000 TERMINATED 1 0 1 5"));
    }
}

TEST_CASE("Tuning.a_failed_trial_begins_anew") {
    const Directory storage("tuning-restart");
    CHECK(contains(tuned("restart", 1, storage).output, "TRIAL 00001 ERROR 2 2 1 5"));
    const auto ended = tuned("restart", 1, storage);
    CAPTURE(ended.output);
    CHECK(contains(ended.output, "TRIAL 00001 TERMINATED 6 6 1 5"));
    const auto before = storage.path() / "search" / "trial_00001_x-1" / "generation_0";
    CHECK(count(test::read(before / "result.json"), "\n") == 2);
}

TEST_CASE("Tuning.the_space_changes_scaling") {
    const Directory storage("tuning-scaling");
    const auto ended = tuned("scaling", 1, storage);
    CAPTURE(ended.output);
    CHECK(contains(ended.output, "TRIAL 00000 TERMINATED 6 12 1 5"));
    CHECK(contains(ended.output, "TRIAL 00001 TERMINATED 6 12 2 5"));
}

TEST_CASE("Tuning.options_that_cannot_work_are_refused") {
    const auto made = [](TunerOptions options) {
        return test::code_of([&] {
            const Tuner tuner([](tune::Trial&, const Config&) { return 1.0; }, std::move(options));
        });
    };
    CHECK(made({.tune = {.metric = "loss"}}) == "RT-U108");
    CHECK(made({.tune = {.num_samples = 0}}) == "RT-U108");
    CHECK(made({.tune = {.num_samples = -1}}) == "RT-U108");
    CHECK(made({.tune = {.max_concurrent_trials = 0}}) == "RT-U108");
    CHECK(made({.tune = {.time_budget_s = 0}}) == "RT-U108");
    CHECK(made({.param_space = {{"run/name", "x"}}}) == "RT-U109");
    CHECK(made({.param_space = {{"x", 1}}}).empty());

    const data::Datasets known{{"small", data::from_tensors({{"x", torch::zeros({1})}})}};
    CHECK(made({.datasets = known}) == "RT-U108");
    const auto tried = [&](const Config& config) {
        return test::code_of([&] { (void)tune::trial_options({}, config, known); });
    };
    CHECK(tried({{"scaling", {{"num_worker", 2}}}}) == "RT-U112");
    CHECK(tried({{"scaling", {{"use_gpu", "often"}}}}) == "RT-U112");
    CHECK(tried({{"datasets", {{"train", "large"}}}}) == "RT-U112");
    CHECK(tried({{"datasets", {{"train", "small"}}}, {"scaling", {{"num_workers", 2}}}}).empty());
}

TEST_CASE("Tuning.functions_take_their_configs_as_structs") {
    const Directory storage("tuning-typed");
    const auto ended = tuned("typed", 2, storage);
    CAPTURE(ended.output);
    CHECK(ended.status == 0);
    CHECK(contains(ended.output, "TRIAL 00001 1 8"));
    CHECK(contains(ended.output, "TRIAL 00002 2 8"));
    CHECK(contains(ended.output, "TRIAL 00002 3")); // of the function
    CHECK(json::parse(test::read(storage.path() / "search" / "trial_00001_x-1" / "params.json")) ==
          boost::json::value{{"x", 1.0}, {"offset", 5}, {"unset", 3}});

    const Directory other("tuning-typed-wrong");
    const auto wrong = tuned("typed-wrong", 2, other);
    CAPTURE(wrong.output);
    CHECK(contains(wrong.output,
                   "ERROR the config has \"many\" for \"x\"; expected a number [RT-C168]"));
    CHECK(!contains(wrong.output, "TRIAL"));
}

TEST_CASE("Tuning.another_function_does_not_go_on_with_a_search") {
    const Directory storage("tuning-another");
    const auto ended = tuned("function-another", 1, storage);
    CAPTURE(ended.output);
    CHECK(count(ended.output, "SCORE 1") == 2);
    CHECK(contains(ended.output, "[RT-U107]"));
}

TEST_CASE("Tuning.what_a_trial_leaves_running_delays_no_other") {
    const Directory storage("tuning-background");
    const auto ended = tuned("background", 1, storage);
    CAPTURE(ended.output);
    CHECK(contains(ended.output, "TRIAL 00000 TERMINATED"));
    CHECK(contains(ended.output, "TRIAL 00001 ERROR"));
    CHECK(contains(ended.output, "TRIAL 00002 TERMINATED"));
    (void)test::run("pkill -f 'sleep 100'");
}

TEST_CASE("Tuning.processes_that_make_other_calls_are_told") {
    const Directory storage("tuning-other-calls");
    const auto ended = tuned("other-calls", 2, storage);
    CAPTURE(ended.output);
    CHECK(ended.status != 0);
    CHECK(contains(ended.output, "RT-U110"));
    CHECK(nothing_is_left(storage));
}

TEST_CASE("Tuning.a_trial_goes_on_from_a_donors_checkpoint") {
    const Directory storage("tuning-pbt");
    const auto ended = tuned("pbt", 1, storage);
    CAPTURE(ended.output);
    for (const char* trial : {"00000", "00001", "00002"}) {
        CHECK(contains(ended.output, std::string("TRIAL ") + trial + " TERMINATED"));
    }
    CHECK(contains(ended.output, "from 00000_0")); // what a trial's run says with verbose = 2
    CHECK(!contains(ended.output, "damaged"));
}

TEST_CASE("Tuning.a_dead_donor_is_still_cloned") {
    for (const int ranks : {1, 2}) {
        const Directory storage("tuning-pbt-dead-" + std::to_string(ranks));
        const auto ended = tuned("pbt-dead", ranks, storage);
        CAPTURE(ended.output);
        CHECK(contains(ended.output, "from 00000_0")); // at report 2, when the donor had died
        CHECK(contains(ended.output, "TRIAL 00000 TERMINATED"));
        CHECK(contains(ended.output, "TRIAL 00001 TERMINATED"));
        CHECK(nothing_is_left(storage));
    }
    const Directory storage("tuning-class-dead");
    const auto ended = tuned("class-dead", 1, storage);
    CAPTURE(ended.output);
    CHECK(ended.status == 0);
    CHECK(contains(ended.output, "TRIAL 00000 TERMINATED 6"));
    CHECK(contains(ended.output, "TRIAL 00001 ERROR 2"));
    CHECK(contains(ended.output, "LOADED 12 for 1"));
    CHECK(!contains(ended.output, "LOADED 2 ")); // its own
}

TEST_CASE("Tuning.a_class_that_fails_and_runs_again_is_cloned_meanwhile") {
    const Directory storage("tuning-class-runs-again");
    const auto ended = tuned("class-runs-again", 1, storage);
    CAPTURE(ended.output);
    CHECK(ended.status == 0);
    CHECK(contains(ended.output, "TRIAL 00000 TERMINATED 6"));
    CHECK(contains(ended.output, "TRIAL 00001 TERMINATED 6"));
    CHECK(count(ended.output, "LOADED 12 for 1") >= 2); // to run again, and by its clone
}

TEST_CASE("Tuning.a_search_that_is_killed_goes_on") {
    const Directory storage("tuning-kill");
    CHECK(tuned("kill-search", 1, storage).status == 128 + 9);
    CHECK(nothing_is_left(storage)); // also of its trials
    const auto ended = tuned("kill-search", 1, storage);
    CAPTURE(ended.output);
    CHECK(contains(ended.output, "TRIAL 00000 TERMINATED 6 0 1 5"));
    CHECK(contains(ended.output, "TRIAL 00001 TERMINATED 6 6 1 5"));
    CHECK(contains(ended.output, "TRIAL 00002 TERMINATED 6 12 1 5"));
    CHECK(nothing_is_left(storage));
}
