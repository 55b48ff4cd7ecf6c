// SPDX-License-Identifier: Apache-2.0
// Searches as users write them, alone or on the ranks of one mpirun; slots_test.cpp runs it. Each
// rank leaves what fit() gives it in results-<rank>, each call of what is tuned a line in calls.
//
//   slots <variant> <ranks of a trial> <storage path>
#include "support/training.hpp"

#include <rtrain/tune/schedule/asha.hpp>
#include <rtrain/tuner.hpp>

#include <chrono>
#include <csignal>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include <unistd.h>

using namespace rtrain;

namespace {

std::filesystem::path place;
std::string variant;

int world_rank() {
    return launch::env_int("OMPI_COMM_WORLD_RANK").value_or(0);
}

void note_call(const std::string& trial) {
    std::ofstream(place / "calls", std::ios::app)
        << (trial + " " + std::to_string(world_rank()) + "\n");
}

/// Resumes from its newest state. Trial 00003 throws.
double halve(tune::Trial& trial, const Config& config) {
    note_call(trial.id());
    if (variant == "no-room" && world_rank() > 0) { // for a state, where rank 0 would put it
        std::ofstream(trial.directory() / "checkpoint_000000.half") << "in the way";
    }
    double loss = trial.state() ? std::stod(*trial.state()) : config.at("x").to_number<double>();
    for (auto step = trial.reports(); step < 4; ++step) {
        if (variant == "slow" || variant == "no-room") {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        if (trial.id() == "00003" && step == 2) {
            throw std::runtime_error("bad luck");
        }
        loss /= 2;
        if (!trial.report({{"loss", loss}}, json::serialize(loss))) {
            break;
        }
    }
    return loss;
}

struct Walk {
    double at = 0;
    double stride = 0;
    void setup(const Config& config) {
        note_call("a class");
        stride = config.at("x").to_number<double>();
    }
    Config step() { return {{"loss", at += stride}}; }
    [[nodiscard]] std::string save() const { return json::serialize(at); }
    void load(const std::string& bytes) { at = std::stod(bytes); }
};

/// The last rank of trial 00001 dies, if the variant says so.
struct Count {
    void operator()(auto& worker, const Config& config) const {
        const auto x = config.at("x").to_number<double>();
        std::int64_t step = 0;
        auto state = State{}.add("step", step);
        worker.restore(state);
        if (worker.rank() == 0) {
            note_call("0000" + std::to_string(static_cast<int>(x)));
        }
        while (step < 3 && !worker.should_stop()) {
            ++step;
            if (variant == "slow-trainer") {
                std::this_thread::sleep_for(std::chrono::milliseconds(200));
            }
            if (variant == "die" && step == 2 && x == 1 && worker.rank() == worker.size() - 1) {
                ::raise(SIGKILL);
            }
            worker.report({{"loss", x * static_cast<double>(step)}, {"ranks", worker.size()}},
                          state);
        }
    }
};

bool tunes_trainer() {
    return variant == "trainer" || variant == "slow-trainer" || variant == "die" ||
           variant == "between";
}

TunerOptions options() {
    TunerOptions options{.param_space = {{"x", tune::uniform(0, 1)}},
                         .tune = {.metric = "loss", .mode = "min", .num_samples = 12},
                         .run = {.name = "search", .storage_path = place}};
    if (variant == "asha") {
        options.tune.scheduler = tune::Asha({.max_t = 4, .grace_period = 1});
    } else if (variant == "unknown-metric") {
        options.tune.metric = "score";
        options.tune.require_metric = true;
    } else if (variant == "class") {
        options.run.stop = stop::MaxIterations{3};
    } else if (tunes_trainer()) {
        options.param_space = {{"x", tune::grid_search({0, 1, 2})}};
        options.tune.num_samples = 1;
        if (variant == "slow-trainer") {
            options.param_space = {{"x", tune::grid_search({0, 1, 2, 3, 4, 5, 6})}};
        }
    }
    return options;
}

ResultGrid search(int ranks) {
    if (variant == "class") {
        return Tuner{tune::trainable<Walk>, options()}.fit();
    }
    if (tunes_trainer()) {
        const Trainer<> trainer{{.scaling = {.num_workers = ranks}}};
        return Tuner{trainer, Count{}, options()}.fit();
    }
    return Tuner{halve, options()}.fit();
}

/// All that does not depend on the clock.
void show(const ResultGrid& results, std::ostream& out) {
    for (const auto& result : results) {
        out << result.trial_id << ' ' << tune::name_of(result.state) << ' '
            << json::serialize(result.config);
        for (Config metrics : result.metrics_history) {
            for (const char* name : {"loss", "ranks", "training_iteration"}) {
                out << ' ' << (metrics.contains(name) ? json::serialize(metrics.at(name)) : "-");
            }
        }
        out << '\n';
    }
}

} // namespace

int main(int argc, char** argv) {
    variant = argc > 1 ? argv[1] : "";
    const int ranks = argc > 2 ? std::stoi(argv[2]) : 1;
    place = argc > 3 ? argv[3] : ".";
    const auto trained = [&](const char* name) { // by all ranks together
        return variant == "between" &&
               Trainer<>{{.config = {{"x", 5}}, .run = {.name = name, .storage_path = place}}}
                       .fit(Count{})
                       .metric("loss") != 15;
    };
    if (trained("before")) {
        return 1;
    }
    const auto pid = place / ("pid-" + std::to_string(world_rank()));
    if (launch::ranks() && !std::filesystem::exists(pid)) { // not those of trials
        std::ofstream(place / "pid-mpirun") << ::getppid();
        std::ofstream(pid) << ::getpid();
    }
    std::ofstream out(place / ("results-" + std::to_string(world_rank())));
    try {
        show(search(ranks), out);
    } catch (const Error& error) {
        out << "ERROR " << error.what() << '\n';
    }
    return trained("behind") ? 1 : 0;
}
