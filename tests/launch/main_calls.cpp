// SPDX-License-Identifier: Apache-2.0
// A program whose main() reads standard input, makes a configuration, restores a run, calls fit()
// where it must not: main_test.cpp runs it.
#include "support/training.hpp"

#include <rtrain/comm/pending.hpp> // what AsyncBackend asks of SlowToJoin

#include <atomic>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>

#include <unistd.h>

namespace {

using rtrain::Config;
using rtrain::TrainerOptions;

std::string line_of_input() {
    std::string line;
    std::getline(std::cin, line);
    return line;
}

/// What main() reads before fit().
std::string read_input(const std::string& how) {
    if (how == "reads-all") {
        return {std::istreambuf_iterator<char>(std::cin), {}};
    }
    if (how == "reads-unsynchronised") {
        std::ios::sync_with_stdio(false);
        return line_of_input();
    }
    if (how == "reads-five-bytes") {
        std::string text(5, '\0');
        text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(0, text.data(), 5))));
        return text;
    }
    if (how == "reads-and-rewinds") {
        const std::string line = line_of_input();
        std::rewind(stdin);
        return line;
    }
    return how == "reads-nothing" ? "" : line_of_input();
}

/// One rank after the other prints what `text()` gives there.
template <class F>
auto telling(F text) {
    return [text](auto& worker) {
        for (int rank = 0; rank < worker.size(); ++rank) {
            if (rank == worker.rank()) {
                std::string told = text();
                std::replace(told.begin(), told.end(), '\n', '|');
                std::cout << "RANK " << rank << " [" << told << "]" << std::endl;
            }
            worker.barrier();
        }
    };
}

TrainerOptions options(const std::string& name, const char* storage) {
    TrainerOptions result;
    result.scaling.num_workers = rtrain::NumWorkers(rtrain::launch::ranks().value_or(2));
    result.run.name = name;
    result.run.storage_path = storage;
    return result;
}

void read_and_train(const std::string& how, const char* storage) {
    auto with = options("r", storage);
    const std::string text = read_input(how);
    if (how == "reads-config") {
        with.config["text"] = text;
    }
    if (how == "reads-and-validates") {
        with.validation.function = [text](const rtrain::Checkpoint&, const Config&) {
            return Config{{"text", text}};
        };
        const auto result = rtrain::Trainer<>(with).fit([](auto& worker) {
            int step = 1;
            worker.report({}, rtrain::State{}.add("step", step), {.validation = true});
        });
        std::cout << "VALIDATED " << result.best_checkpoints.at(0).second.at("text") << std::endl;
    } else if (how == "reads-twice") {
        rtrain::Trainer<>(with).fit(telling([&] { return text; }));
        const std::string second = line_of_input();
        rtrain::Trainer<>(options("s", storage)).fit(telling([&] { return text + second; }));
    } else if (how == "reads-nothing" || how == "reads-line") {
        rtrain::Trainer<>(with).fit(telling([&] { return text + " then " + line_of_input(); }));
    } else {
        rtrain::Trainer<>(with).fit(telling([&] { return text; }));
    }
}

rtrain::data::Datasets data() {
    return {{"train", rtrain::data::from_tensors({{"x", torch::ones({4, 1})}})}};
}

/// Of rank 0 only; a launched rank cannot say anything behind fit().
void tell_size(auto& worker) {
    int step = 1;
    worker.report({{"size", worker.size()}}, rtrain::State{}.add("step", step));
}

/// A rank in the middle of MPI_Init, for ever.
struct SlowToJoin : rtrain::backend::Mpi {
    void start(const rtrain::ScalingConfig&) {
        std::cout << "PID " << ::getpid() << std::endl;
        std::this_thread::sleep_for(std::chrono::hours(1));
    }
};

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        return 2;
    }
    const std::string variant = argv[1];
    const char* const storage = argv[2];
    try {
        if (variant.starts_with("reads-")) {
            read_and_train(variant, storage);
        } else if (variant == "other-config") {
            auto with = options("r", storage);
            with.config = {{"lr", 0.1}, {"process", ::getpid()}};
            rtrain::Trainer<>(with).fit(telling([] { return ""; }));
        } else if (variant == "made") {
            auto with = options("r", storage);
            with.scaling.num_workers = 3;
            with.run.checkpoint.num_to_keep = 1;
            with.datasets = data();
            rtrain::Trainer<>(with).fit([](auto& worker) { tell_size(worker); });
        } else if (variant == "restored") {
            const auto run = std::filesystem::path(storage) / "r";
            const auto result = rtrain::Trainer<>::restore(run, TrainerOptions{.datasets = data()})
                                    .fit([](auto& worker) { tell_size(worker); });
            std::cout << "SIZE " << result.metrics.at("size") << " KEPT "
                      << result.best_checkpoints.size() << std::endl;
        } else if (variant == "fit-in-fit") {
            rtrain::Trainer<>(options("r", storage)).fit([&](auto& worker) {
                worker.barrier();
                rtrain::Trainer<>(options("s", storage)).fit(telling([] { return ""; }));
            });
        } else if (variant == "says-it-died" || variant == "says-another-died") {
            auto with = options("r", storage);
            with.run.failure.max_failures = 1;
            bool first = true; // in this process
            rtrain::Trainer<>(with).fit([&](auto& worker) {
                std::cout << "PID " << ::getpid() << std::endl;
                if (std::exchange(first, false) && worker.rank() == 1) {
                    if (variant == "says-it-died") {
                        throw std::runtime_error("the process died");
                    }
                    throw rtrain::PeerError("RT-X9", "rank 0 died");
                }
                worker.barrier();
            });
            std::cout << "DONE" << std::endl;
        } else if (variant == "joins-slowly") {
            rtrain::Trainer<SlowToJoin>(options("r", storage)).fit([](auto&) {});
        } else if (variant == "unlike-models") {
            rtrain::Trainer<>(options("r", storage)).fit([](auto& worker) {
                torch::nn::Sequential net(torch::nn::Linear(2, 2));
                if (worker.rank() == 1) {
                    net->push_back(torch::nn::Linear(2, 2));
                }
                (void)worker.prepare(net);
            });
        } else {
            return 2;
        }
    } catch (const rtrain::Error& error) {
        std::cout << "ERROR " << error.what() << std::endl;
        return 1;
    }
}
