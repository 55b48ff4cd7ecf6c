// SPDX-License-Identifier: Apache-2.0
// Searches over a script; trials_test.py and benchmarks/programs run it. Prints a line of JSON for
// each trial.
//
//   searching <options> <command>...
//
// The options are JSON: "metric", "storage", "scheduler" ("asha" or "pbt"), "samples", "at_once",
// "ranks", "restarts", "preload", "tool", "cleanup_s", "require_metric", "iterations", and "space",
// values of a grid by name. NaN is the text "NaN".
#include <rtrain/base/json.hpp>
#include <rtrain/program/program_trainer.hpp>
#include <rtrain/tune/schedule/asha.hpp>
#include <rtrain/tune/schedule/pbt.hpp>
#include <rtrain/tuner.hpp>

#include <cmath>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

using namespace rtrain;

namespace {

class Given {
public:
    explicit Given(const char* text) : options_(json::parse(text).as_object()) {}

    [[nodiscard]] double number(const char* name, double otherwise) const {
        const auto* const value = options_.if_contains(name);
        return value != nullptr ? value->to_number<double>() : otherwise;
    }
    [[nodiscard]] int count(const char* name, int otherwise) const {
        return static_cast<int>(number(name, otherwise));
    }
    [[nodiscard]] std::string text(const char* name, const std::string& otherwise = "") const {
        const auto* const value = options_.if_contains(name);
        return value != nullptr ? std::string(value->as_string()) : otherwise;
    }
    [[nodiscard]] tune::Space space() const {
        std::vector<tune::Space::Entry> entries;
        const auto* const given = options_.if_contains("space");
        for (const auto& item : given != nullptr ? given->as_object() : Config()) {
            std::vector<boost::json::value> values;
            for (const auto& value : item.value().as_array()) {
                values.push_back(value == "NaN" ? boost::json::value(std::nan("")) : value);
            }
            entries.emplace_back(item.key(), tune::grid_search(std::move(values)));
        }
        return tune::Space(std::move(entries));
    }

private:
    Config options_;
};

ProgramOptions program_of(const Given& given, std::vector<std::string> command) {
    ProgramOptions program{.command = std::move(command),
                           .rendezvous = rendezvous::None{},
                           .config = {{"fixed", 1}, {"x", -1}},
                           .tool = given.text("tool")};
    program.scaling.num_workers = given.count("ranks", 1);
    if (const std::string module = given.text("preload"); !module.empty()) {
        program.preload = {module};
    }
    return program;
}

TunerOptions search_of(const Given& given) {
    TunerOptions options{.param_space = given.space(),
                         .tune = {.metric = given.text("metric", "score"),
                                  .mode = "max",
                                  .num_samples = given.count("samples", 1),
                                  .max_concurrent_trials = given.count("at_once", 2),
                                  .force_trial_cleanup_s = given.number("cleanup_s", 600),
                                  .require_metric = given.count("require_metric", 0) == 1},
                         .run = {.name = "search",
                                 .storage_path = given.text("storage", "results"),
                                 .failure = {.max_failures = given.count("restarts", 0)}},
                         .resources_per_trial = {.cpus = 0.25}};
    if (const int most = given.count("iterations", 0); most > 0) {
        options.run.stop = stop::MaxIterations{most};
    }
    const std::string scheduler = given.text("scheduler");
    if (scheduler == "asha") {
        options.tune.scheduler = tune::Asha({.max_t = 8, .grace_period = 2, .reduction_factor = 2});
    } else if (scheduler == "pbt") {
        options.tune.scheduler =
            tune::Pbt({.time_attr = "training_iteration",
                       .perturbation_interval = 2,
                       .hyperparam_mutations = {{"offset", tune::uniform(8, 9)}},
                       .quantile_fraction = 0.5});
    }
    return options;
}

} // namespace

int main(int argc, char** argv) {
    const Given given(argv[1]);
    const ProgramTrainer trainer(program_of(given, {argv + 2, argv + argc}));
    try {
        for (const TrialResult& trial : Tuner{trainer, search_of(given)}.fit()) {
            std::cout << json::serialize({{"trial", trial.trial_id},
                                          {"state", tune::name_of(trial.state)},
                                          {"config", trial.config},
                                          {"metrics", trial.metrics},
                                          {"reports", trial.metrics_history.size()},
                                          {"path", trial.path.string()},
                                          {"error", trial.error ? trial.error->what() : ""}})
                      << '\n';
        }
    } catch (const Error& error) {
        std::cerr << "ERROR " << error.what() << '\n';
        return 1;
    }
}
