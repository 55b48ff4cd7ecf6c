// SPDX-License-Identifier: Apache-2.0
// A program that makes the calls of its command line on CreatorTrainers: creators_test.py runs it.
//
//   creators [--option=value]... call...
//
// A call is train, train:EPOCHS, steps:N, validate, save:PATH, restore:PATH, load:PATH, update,
// update:METRIC, data:SEED, model, shutdown, sleep:SECONDS, wait:FILE, touch:FILE, throw,
// exit:CODE, fit, search:TRIALS, or other: the following calls are of another CreatorTrainer.
#include <rtrain/creators.hpp>
#include <rtrain/tune/schedule/asha.hpp>
#include <rtrain/tuner.hpp>

#include <torch/torch.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace {

using rtrain::Config;

std::map<std::string, std::string> given; ///< options

std::string option(const std::string& name, const std::string& otherwise = "") {
    const auto found = given.find(name);
    return found != given.end() ? found->second : otherwise;
}
int number(const std::string& name, int otherwise) {
    const std::string text = option(name);
    return text.empty() ? otherwise : std::stoi(text);
}

/// Does something once, in the step of --kill=RANK:STEP or --stop=RANK:STEP; STEP -N: in
/// its N-th save; the first is one that rtrain tries.
void disturb(int step) {
    const int rank = rtrain::launch::rank().value_or(0);
    for (const auto& [name, signal] : {std::pair("kill", SIGKILL), std::pair("stop", SIGSTOP)}) {
        const std::filesystem::path done = option("storage") + "/" + name;
        if (option(name) == std::to_string(rank) + ":" + std::to_string(step) &&
            !std::filesystem::exists(done)) {
            std::ofstream(done) << "done";
            ::raise(signal);
        }
    }
}

struct NetImpl : torch::nn::Module {
    torch::nn::Linear in = register_module("in", torch::nn::Linear(3, 8));
    torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(0.1));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(8, 1));
    int steps = 0;
    mutable int saves = 0;
    torch::Tensor forward(const torch::Tensor& x) {
        disturb(++steps);
        return out(dropout(torch::relu(in(x))));
    }
    void save(rtrain::StateWriter& /*out*/) const { disturb(-(++saves)); }
    void load(const rtrain::StateReader& /*in*/) {}
};
TORCH_MODULE(Net);

rtrain::data::Dataset rows(std::uint64_t seed, std::int64_t count) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    const auto x = torch::randn({count, 3}, generator);
    return rtrain::data::from_tensors({{"x", x}, {"y", x.sum(1, true).sin()}});
}

template <class Backend>
auto options(const std::string& name, Backend backend) {
    const int replicas = number("replicas", 2);
    return rtrain::CreatorOptions{
        .model_creator =
            [](const Config&) {
                torch::manual_seed(3);
                Net net;
                if (option("model") == "null") {
                    return Net(nullptr);
                }
                if (option("model") == "throws" && rtrain::launch::rank() == 1) {
                    throw std::runtime_error("no model here");
                }
                if (option("model") == "large") {
                    net->in = net->replace_module("in", torch::nn::Linear(3, 16));
                    net->out = net->replace_module("out", torch::nn::Linear(16, 1));
                }
                if (option("model") == "wide" && rtrain::launch::rank() == 1) {
                    net->out = net->replace_module("out", torch::nn::Linear(8, 2));
                }
                return net;
            },
        .data_creator =
            [](const Config&) {
                return std::pair(rows(1, 60),
                                 option("data") == "train" ? rows(1, 60) : rows(2, 24));
            },
        .optimizer_creator =
            [](auto& model, const Config& config) {
                return torch::optim::Adam(model->parameters(), config.at("lr").as_double());
            },
        .scheduler_creator = [](auto& optimizer,
                                const Config&) { return torch::optim::StepLR(optimizer, 2, 0.5); },
        .scheduler_step_freq = option("schedule") == "manual" ? rtrain::SchedulerStep::manual
                                                              : rtrain::SchedulerStep::epoch,
        .config = {{"lr", 0.01}},
        .num_replicas = replicas > 0 ? rtrain::NumWorkers(replicas) : rtrain::NumWorkers(),
        .batch_size = number("batch", 12),
        .backend = backend,
        .run = {.name = name,
                .storage_path = option("storage"),
                .failure = {.max_failures = number("failures", 0),
                            .hang = {.idle_s = 5, .stopped_s = 2}},
                .console = {.verbose = 0}},
        .threads_per_worker = 1,
        .save_every_call = option("save_every_call") == "no" ? std::optional(false) : std::nullopt};
}

/// All ranks have the same values; rank 0 prints them.
bool leads() {
    return rtrain::launch::rank().value_or(0) == 0;
}
void print(const char* name, double value) {
    if (leads()) {
        std::printf(" %s=%a", name, value);
    }
}

/// Waits for a file of the test, which is there at most a minute later.
void wait_for(const std::string& file) {
    for (int i = 0; i < 6000 && !std::filesystem::exists(file); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

template <class Trainer>
void make(Trainer& trainer, const std::string& name, const std::string& argument) {
    if (name == "train" || name == "steps") {
        const bool epochs = name == "train";
        const auto stats =
            trainer.train({.epochs = epochs && !argument.empty() ? std::stoi(argument) : 1,
                           .num_steps = epochs ? std::nullopt
                                               : std::optional<std::int64_t>(std::stoi(argument))});
        print("loss", stats.train_loss);
        print("lr", stats.learning_rate);
        print("rows", static_cast<double>(stats.batch_processed));
        print("batches", static_cast<double>(stats.batch_count));
    } else if (name == "validate") {
        const auto stats = trainer.validate();
        print("loss", stats.validation_loss);
        print("accuracy", stats.mean_accuracy.value_or(-1));
    } else if (name == "save") {
        trainer.save(argument);
    } else if (name == "restore") {
        trainer.restore(argument);
    } else if (name == "load") {
        trainer.load(argument);
    } else if (name == "update") {
        trainer.update_scheduler(argument.empty() ? std::nullopt
                                                  : std::optional(std::stod(argument)));
    } else if (name == "data") {
        const auto seed = static_cast<std::uint64_t>(std::stoi(argument));
        trainer.set_data(rows(seed, 36), rows(seed + 1, 12));
    } else if (name == "model") {
        const auto model = trainer.get_model();
        print("sum", model->in->weight.to(at::kDouble).sum().template item<double>());
    } else if (name == "shutdown") {
        trainer.shutdown();
    } else {
        throw std::invalid_argument(name);
    }
}

/// Returns how many trials of a search have reported; Asha ends some early.
double search(int trials) {
    const rtrain::CreatorTrainable trainable{options("", "auto"), 4};
    rtrain::Tuner tuner{
        rtrain::Trainer<>{{.scaling = {.num_workers = number("replicas", 2)}}}, trainable,
        rtrain::TunerOptions{
            .param_space = {{"lr", rtrain::tune::loguniform(1e-4, 1e-1)}},
            .tune = {.metric = "mean_loss",
                     .mode = "min",
                     .scheduler = rtrain::tune::Asha({.max_t = 4, .grace_period = 1}),
                     .num_samples = trials,
                     .max_concurrent_trials = 1},
            .run = {
                .name = "search", .storage_path = option("storage"), .console = {.verbose = 0}}}};
    const rtrain::ResultGrid results = tuner.fit();
    double good = 0;
    std::size_t reports = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
        good += results[i].metrics_history.empty() ? 0 : 1;
        reports += results[i].metrics_history.size();
    }
    print("fewer", reports < 4 * results.size() ? 1 : 0);
    return good;
}

/// Returns false if it is a call of a trainer.
bool act(const std::string& name, const std::string& argument) {
    if (name == "sleep") {
        std::this_thread::sleep_for(std::chrono::duration<double>(std::stod(argument)));
    } else if (name == "wait") {
        wait_for(argument);
    } else if (name == "touch") {
        std::ofstream(argument) << "here";
    } else if (name == "throw") {
        throw std::runtime_error("main() has thrown");
    } else if (name == "exit") {
        std::exit(std::stoi(argument));
    } else if (name == "search") {
        print("trials", search(std::stoi(argument)));
    } else if (name == "fit") {
        rtrain::Trainer<> trainer{
            {.scaling = {.num_workers = 2},
             .run = {.name = "fit", .storage_path = option("storage"), .console = {.verbose = 0}}}};
        const auto result = trainer.fit([](auto& worker) {
            worker.report({{"ranks", worker.size()}});
        });
        print("ranks", result.metric("ranks"));
    } else {
        return false;
    }
    return true;
}

template <class Backend>
int run(int count, char** words, Backend backend) {
    using Trainer = decltype(rtrain::CreatorTrainer{options("", backend)});
    std::map<std::string, std::unique_ptr<Trainer>> trainers;
    std::string current = "run";
    for (int i = 1; i < count; ++i) {
        const bool differs = i == number("odd", -1) && rtrain::launch::rank() == 1;
        const std::string word = differs ? "validate" : words[i];
        const std::size_t colon = std::min(word.find(':'), word.size());
        const std::string name = word.substr(0, colon);
        const std::string argument = word.substr(std::min(colon + 1, word.size()));
        if (name.starts_with("--")) {
            continue;
        }
        if (name == "other" || name == "run") {
            current = name;
            continue;
        }
        try {
            const bool acted = act(name, argument);
            auto& trainer = trainers[current];
            if (!acted && !trainer) {
                trainer = std::make_unique<Trainer>(options(current, backend));
            }
            if (!acted) {
                make(*trainer, name, argument);
            }
            if (leads()) {
                std::printf(" %s\n", word.c_str());
            }
        } catch (const rtrain::Error& error) {
            if (leads()) {
                std::printf(" %s: %s\n", word.c_str(), error.what());
            }
        }
        std::fflush(stdout);
    }
    return 0;
}

} // namespace

int main(int count, char** words) {
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        if (word.starts_with("--")) {
            const std::size_t equals = word.find('=');
            given[word.substr(2, equals - 2)] = word.substr(equals + 1);
        }
    }
    return option("backend") == "local" ? run(count, words, rtrain::backend::Local{})
                                        : run(count, words, "auto");
}
