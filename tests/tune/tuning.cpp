// SPDX-License-Identifier: Apache-2.0
// Searches over trainers, as users write them; tuning_test.cpp runs it.
//
//   tuning <variant> <ranks> <storage path>
#include "support/training.hpp"

#include <rtrain/tune/resources/this_machine.hpp>
#include <rtrain/tune/schedule/asha.hpp>
#include <rtrain/tune/schedule/pbt.hpp>
#include <rtrain/tuner.hpp>

#include <boost/describe/class.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

using namespace rtrain;

namespace {

/// Counts to `steps`, slower or faster to a better score. `bad` says what goes wrong in a trial.
struct Count {
    std::string bad;
    std::filesystem::path storage;
    int calls = 0;

    void operator()(auto& worker, const Config& config) {
        const auto x = config.at("x").to_number<double>();
        if (!storage.empty()) { // in a trial
            std::ofstream(storage / "calls", std::ios::app)
                << (std::to_string(static_cast<int>(x)) + " " + std::to_string(::getpid()) + "\n");
        }
        std::cout << "CALL " << ++calls << " of " << x << ", " << torch::rand({1}).item<double>()
                  << " is random\n";
        if (bad.starts_with("cores")) {
            std::string cores = std::to_string(worker.size());
            for (const int core : rtrain::detail::cores_of_this_machine()) {
                cores += " " + std::to_string(core);
            }
            std::ofstream(storage / "cores", std::ios::app) << cores + "\n";
        }
        std::int64_t step = 0;
        auto state = State{}.add("step", step);
        worker.restore(state);
        const bool waits_for_ranks = bad == "resize" && x == 1 && worker.size() == 1;
        while ((step < 6 || waits_for_ranks) && !worker.should_stop()) {
            ++step;
            if (waits_for_ranks) {
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
            }
            if (bad == "chaos") { // so that kills meet all of a trial
                std::this_thread::sleep_for(std::chrono::milliseconds(40));
            }
            while (bad == "pbt-dead" && step == 2 && x == 0 && // until the donor is dead
                   !std::filesystem::exists(storage / "died")) {
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
            if (step == 3 && x == 1 && worker.rank() == worker.size() - 1) {
                disturb();
            }
            worker.report({{"score", x * static_cast<double>(step)},
                           {"ranks", worker.size()},
                           {"offset", config.contains("offset") ? config.at("offset") : 0}},
                          state);
            while (bad == "silent" && !worker.should_stop()) {
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
        }
        if (bad == "idle" && x == 0) { // killed once the search has heard that its trial has ended
            const std::string events = (storage / "search" / "tuner_events.jsonl").string();
            const std::string kill = "(until grep -q returned " + events +
                                     "; do sleep 0.05; done; kill -KILL " +
                                     std::to_string(::getpid()) + "; touch " +
                                     (storage / "killed").string() + ") >/dev/null 2>&1 &";
            if (std::system(kill.c_str()) != 0) {
                throw std::runtime_error("no shell");
            }
        }
        while (bad == "idle" && x == 1 && !std::filesystem::exists(storage / "killed")) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        while (bad == "ignore") {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    }

    void disturb() const {
        if (bad == "throw" || bad == "background") {
            throw std::runtime_error("bad luck");
        }
        if (bad == "restart" && !std::filesystem::exists(storage / "died")) {
            std::ofstream(storage / "died") << "once";
            throw std::runtime_error("bad luck");
        }
        if (bad == "die") {
            ::raise(SIGKILL);
        }
        if ((bad == "die-once" || bad == "pbt-dead") &&
            !std::filesystem::exists(storage / "died")) {
            std::ofstream(storage / "died") << "once";
            ::raise(SIGKILL);
        }
        if (bad == "kill-search" && !std::filesystem::exists(storage / "died")) {
            std::ofstream(storage / "died") << "once";
            std::ifstream file(storage / "pid");
            pid_t search = 0;
            file >> search;
            ::kill(search, SIGKILL);
            ::sleep(20);
        }
    }
};

struct Hyper {
    double x = 0;
    int offset = 0;
    int unset = 3;
};
BOOST_DESCRIBE_STRUCT(Hyper, (), (x, offset, unset))

/// One report; the rank and the configuration of each call are in its output.
struct TypedTraining {
    void operator()(auto& worker, const Hyper& hyper) const {
        worker.report(
            {{"score", hyper.x}, {"ranks", worker.size()}, {"offset", hyper.offset + hyper.unset}});
    }
};

void search_with_structs(const std::string& variant, Trainer<>& trainer, TunerOptions options) {
    if (variant == "typed-wrong") {
        options.param_space = {{"x", tune::grid_search({0, "many"})}};
    }
    for (const auto& result : Tuner{trainer, TypedTraining{}, options}.fit()) {
        std::cout << "TRIAL " << result.trial_id << ' ' << metric_of(result.metrics, "score") << ' '
                  << metric_of(result.metrics, "offset") << '\n';
    }
    options.run.name = "function";
    const auto function = [](tune::Trial& /*trial*/, const Hyper& hyper) { return hyper.x + 1; };
    for (const auto& result : Tuner{function, options}.fit()) {
        std::cout << "TRIAL " << result.trial_id << ' ' << metric_of(result.metrics, "score")
                  << '\n';
    }
}

/// The one with x = 1 fails behind its second report: for good, once the other one is about to take
/// over its state, and before that has begun to; or, if it `runs_again`, before the other one's
/// report, and reports nothing until that has taken over its state.
struct Walker {
    static inline bool runs_again = false;
    static inline std::atomic<bool> has_reported = false;
    static inline std::atomic<bool> is_taken_over = false;
    static inline std::atomic<bool> has_failed = false;
    static inline std::atomic<bool> has_loaded = false; ///< the one with x = 1, to run again
    double x = -1;
    int steps = 0;

    Walker() = default;
    Walker(const Walker&) = delete;
    Walker& operator=(const Walker&) = delete;
    ~Walker() {
        if (x == 0) {
            is_taken_over = true;
            wait(has_failed);
            std::this_thread::sleep_for(std::chrono::milliseconds(100)); // the search hears of it
        }
    }
    void setup(const Config& config) { x = config.at("x").to_number<double>(); }
    Config step() {
        ++steps;
        if (x == 1 && steps == 3 && !has_failed) {
            has_reported = true;
            if (!runs_again) {
                wait(is_taken_over);
            }
            has_failed = true;
            throw std::runtime_error("bad luck");
        }
        if (x == 1 && runs_again && has_failed) {
            wait(is_taken_over);
        }
        if (x == 0 && steps == 2) {
            wait(runs_again ? has_loaded : has_reported);
        }
        return {{"score", x * steps}};
    }
    [[nodiscard]] std::string save() const {
        return std::to_string(10 * static_cast<int>(x) + steps);
    }
    void load(const std::string& bytes) {
        steps = std::stoi(bytes) % 10;
        has_loaded = has_loaded || x == 1;
        std::cout << "LOADED " << bytes << " for " << x << '\n';
    }

private:
    static void wait(const std::atomic<bool>& flag) {
        while (!flag) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
};

/// Two trials at once, of which that with x = 0 takes over the other's state.
TunerOptions of_two(const std::filesystem::path& storage) {
    TunerOptions options{
        .param_space = {{"x", tune::grid_search({0, 1})}},
        .tune = {.metric = "score", .mode = "max", .max_concurrent_trials = 2},
        .run = {.name = "search", .storage_path = storage, .failure = {.max_failures = 1}},
        .resources_per_trial = {.cpus = 0.25}};
    options.run.console.verbose = 2;
    options.run.stop = stop::MaxIterations{6};
    options.tune.scheduler = tune::Pbt({.time_attr = "training_iteration",
                                        .perturbation_interval = 2,
                                        .hyperparam_mutations = {{"offset", tune::uniform(8, 9)}},
                                        .quantile_fraction = 0.5});
    return options;
}

double one(tune::Trial& /*trial*/, const Config& /*config*/) {
    return 1;
}
double another(tune::Trial& /*trial*/, const Config& /*config*/) {
    return 2;
}

/// A search goes on with its function, and with no other.
void search_over_functions(const std::filesystem::path& storage) {
    const TunerOptions options{.tune = {.metric = "score", .mode = "max"},
                               .run = {.name = "search", .storage_path = storage}};
    for (auto* const function : {one, one, another}) {
        try {
            const auto results = Tuner{function, options}.fit();
            std::cout << "SCORE " << metric_of(results[0].metrics, "score") << '\n';
        } catch (const Error& error) {
            std::cout << "ERROR " << error.what() << '\n';
        }
    }
}

void search_without_ranks(const std::string& variant, const std::filesystem::path& storage) {
    if (variant == "function-another") {
        search_over_functions(storage);
        return;
    }
    if (variant == "class-dead" || variant == "class-runs-again") {
        TunerOptions options = of_two(storage);
        Walker::runs_again = variant == "class-runs-again";
        options.run.failure.max_failures = Walker::runs_again ? 1 : 0;
        for (const auto& result : Tuner{tune::trainable<Walker>, options}.fit()) {
            std::cout << "TRIAL " << result.trial_id << ' ' << tune::name_of(result.state) << ' '
                      << metric_of(result.metrics, "score") << '\n';
        }
        return;
    }
    const auto cores = [](tune::Trial& /*trial*/, const Config& /*config*/) {
        return static_cast<double>(rtrain::detail::cores_of_this_machine().size());
    };
    const auto results =
        Tuner{
            cores,
            TunerOptions{
                .tune = {.metric = "score", .mode = "max", .num_samples = 2, .bind_to_cores = true},
                .run = {.name = "search", .storage_path = storage}}}
            .fit();
    for (const auto& result : results) {
        std::cout << "CORES " << metric_of(result.metrics, "score") << '\n';
    }
}

/// The hosts have room for one rank, and for another from the time between the first two trials on.
void resize_between_trials(TrainerOptions& trainer, TunerOptions& options,
                           const std::filesystem::path& storage) {
    const auto hosts = storage / "hosts";
    if (!std::filesystem::exists(hosts)) {
        std::ofstream(hosts) << "localhost slots=1\n";
    }
    trainer.scaling = {.num_workers = {1, 2},
                       .mpirun_args = {"--hostfile", hosts.string()},
                       .elastic_resize_monitor_interval_s = 0.1};
    options.tune.max_concurrent_trials = 1;
    options.tune.trial_name_creator = [hosts](const tune::TrialInfo& trial) {
        if (trial.number == 1) {
            std::ofstream(hosts) << "localhost slots=2\n";
            std::this_thread::sleep_for(std::chrono::seconds(1)); // who looks for room finds it
        }
        return "trial_" + trial.id;
    };
}

void show(const ResultGrid& results) {
    for (const auto& result : results) {
        std::cout << "TRIAL " << result.trial_id << ' ' << tune::name_of(result.state) << ' '
                  << result.metrics_history.size();
        for (const char* name : {"score", "ranks", "offset"}) {
            if (!result.metrics.empty()) {
                std::cout << ' ' << metric_of(result.metrics, name);
            }
        }
        std::cout << '\n';
    }
}

} // namespace

int main(int argc, char** argv) {
    const std::string variant = argc > 1 ? argv[1] : "";
    const int ranks = argc > 2 ? std::stoi(argv[2]) : 1;
    const std::filesystem::path storage = argc > 3 ? argv[3] : ".";
    std::cout << "BEGIN\n";
    if (variant.starts_with("class-") || variant.starts_with("function-")) {
        search_without_ranks(variant, storage);
        return 0;
    }
    if (variant == "other-calls" && launch::ranks()) { // ranks of the first fit() come to a search
        (void)Tuner{[](tune::Trial&, const Config&) { return 1.0; }, TunerOptions{}}.fit();
    }
    if (variant == "background" && std::getenv("RTRAIN_TUNE_TRIAL") != nullptr &&
        !launch::ranks() &&
        std::system("sleep 100 &") != 0) { // keeps the output of the process that drives a trial
        return 1;
    }
    FailureConfig failure{.max_failures = variant == "die-once" || variant == "pbt-dead" ? 1 : 0};
    if (variant == "chaos") {
        failure = {.max_failures = -1, .controller_failure_limit = -1};
    } else if (variant == "other-calls") {
        failure.controller_failure_limit = 0;
    }
    TunerOptions options{.param_space = {{"x", tune::grid_search({0, 1, 2})}},
                         .tune = {.metric = "score", .mode = "max", .max_concurrent_trials = 2},
                         .run = {.name = "search", .storage_path = storage}};
    TrainerOptions all{.config = {{"offset", 5}},
                       .scaling = {.num_workers = ranks},
                       .run = {.storage_path = storage, .failure = failure}};
    if (variant == "resize") {
        resize_between_trials(all, options, storage);
    }
    Trainer<> trainer{all};
    const auto train = [&](const char* name, int x) {
        return variant == "chaos" // which is about searches
                   ? Result{}
                   : trainer
                         .with(
                             {.config = {{"x", x}}, .run = {.name = name, .storage_path = storage}})
                         .fit(Count{});
    };
    const Result before = train("before", 7);
    if (std::getenv("RTRAIN_TUNE_TRIAL") == nullptr && !launch::ranks()) {
        std::ofstream(storage / "pid") << ::getpid();
    }
    if (variant == "chaos") {
        options.param_space = {{"x", tune::uniform(0, 1)}};
        options.tune.num_samples = 16;
        options.resources_per_trial = {.cpus = 0.25};
    } else if (variant == "asha") {
        options.tune.scheduler = tune::Asha({.max_t = 4, .grace_period = 2});
    } else if (variant == "stop") {
        options.run.stop = stop::MaxIterations{2};
    } else if (variant == "used" || variant == "new") {
        options.tune.max_concurrent_trials = 1;
        options.tune.reuse_workers = variant == "used";
    } else if (variant == "idle") {
        options.param_space = {{"x", tune::grid_search({0, 1})}};
        options.resources_per_trial = {.cpus = 0.25}; // both at once, on any machine
    } else if (variant.starts_with("cores")) {
        options.tune.bind_to_cores = true;
        if (variant == "cores-scaling") {
            options.param_space = {{"x", 2}, {"scaling/num_workers", tune::grid_search({1, 2})}};
            options.tune.max_concurrent_trials = 1;
        }
    } else if (variant == "die" || variant == "die-once") {
        options.tune.max_concurrent_trials = 1;
    } else if (variant == "ignore") {
        options.run.stop = stop::MaxIterations{2};
        options.tune.force_trial_cleanup_s = 0.5;
    } else if (variant == "time") {
        options.run.stop = stop::MaxTime{0.5};
    } else if (variant == "budget") {
        options.tune.time_budget_s = 2;
    } else if (variant == "scaling") {
        options.param_space = {{"x", 2}, {"scaling/num_workers", tune::grid_search({1, 2})}};
    } else if (variant == "pbt-dead") {
        options = of_two(storage);
    } else if (variant == "pbt") {
        options.run.console.verbose = 2;
        options.tune.scheduler =
            tune::Pbt({.time_attr = "training_iteration",
                       .perturbation_interval = 2,
                       .hyperparam_mutations = {{"offset", tune::uniform(8, 9)}}});
    }
    try {
        if (variant.starts_with("typed")) {
            search_with_structs(variant, trainer, options);
            return 0;
        }
        const bool silent = variant == "time" || variant == "budget";
        const Count count{silent ? "silent" : variant, storage};
        const bool restarts = variant == "restart" && std::filesystem::exists(storage / "died");
        auto tuner = restarts ? Tuner<Trainer<>, Count>::restore(storage / "search", trainer, count,
                                                                 options, {.restart_errored = true})
                              : Tuner{trainer, count, options};
        const ResultGrid results = tuner.fit();
        show(results);
        std::cout << "BEST " << results.get_best_result().config.at("x") << '\n';
    } catch (const Error& error) {
        std::cout << "ERROR " << error.what() << '\n';
    }
    const Result behind = train("behind", 8);
    if (variant != "chaos") {
        std::cout << "END " << before.metric("score") << ' ' << behind.metric("score") << '\n';
    }
}
