// SPDX-License-Identifier: Apache-2.0
// Ranks that hang, each in its own way, or do not though they are slow; mutual_watch_test.cpp runs
// it under mpirun.
//
//   hanging <how> <rank that does it, -1: all but the last> <storage path>
#include "support/training.hpp"

#include <rtrain/comm/communicator.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr double limit_s = 3;

struct Case {
    std::string how;
    int rank;
    const char* storage;
};

/// Whether a rank is outside rtrain too long; else idle_s is the limit to look at.
bool is_outside(const Case& of) {
    const std::string all =
        " sleeps sleeps-in-second throws-then-sleeps spins reads outstays beats ";
    return all.find(" " + of.how + " ") != std::string::npos;
}

/// A file that nothing comes from.
class Stalled : public rtrain::data::Dataset::BlockSource {
public:
    [[nodiscard]] std::vector<Block> blocks() const override { return {{.rows = 10}}; }
    [[nodiscard]] rtrain::data::Batch read(std::int64_t /*block*/) const override {
        std::this_thread::sleep_for(1h);
        return {};
    }
    [[nodiscard]] std::string name_of(std::int64_t /*block*/) const override {
        return "s3://bucket/stalled.csv, rows 0 to 9";
    }
};

rtrain::TrainerOptions options(const Case& of, const std::string& name) {
    rtrain::TrainerOptions result;
    result.datasets = {{"stalled", rtrain::data::from_blocks(std::make_shared<const Stalled>())}};
    result.run = {.name = name, .storage_path = of.storage};
    result.run.failure.max_failures = 1;
    result.run.failure.hang = {.enabled = of.how != "sleeps-unwatched",
                               .start_s = 60,
                               .idle_s = is_outside(of) ? 60 : limit_s,
                               .busy_s = is_outside(of) ? limit_s : 60,
                               .stopped_s = 1.5};
    return result;
}

/// At least so much processor time.
void compute(std::chrono::milliseconds time) {
    std::atomic<int> work{0};
    for (const auto until = std::chrono::steady_clock::now() + time;
         std::chrono::steady_clock::now() < until; ++work) {
    }
}

/// What a rank does in its third step.
template <class WorkerType>
void disturb(const Case& of, WorkerType& worker) {
    if (of.how == "crosses") { // each waits for what the others have not called
        auto tensor = torch::ones({4});
        if (worker.rank() == of.rank) {
            worker.communicator().receive(tensor, (of.rank + 1) % worker.size());
        } else {
            worker.barrier();
        }
    }
    const bool mine = of.rank < 0 ? worker.rank() < worker.size() - 1 : worker.rank() == of.rank;
    if (!mine) {
        return;
    }
    if (of.how == "sleeps" || of.how == "sleeps-in-second" || of.how == "sleeps-unwatched") {
        std::this_thread::sleep_for(of.how == "sleeps-unwatched" ? 3 * limit_s * 1s : 3600.0 * 1s);
    } else if (of.how == "spins") {
        for (std::atomic<bool> go_on{true}; go_on;) {
        }
    } else if (of.how == "reads") {
        for ([[maybe_unused]] auto& batch : worker.dataset_shard("stalled").batches()) {
        }
    } else if (of.how == "stops") {
        std::raise(SIGSTOP);
    } else if (of.how == "computes") {
        compute(2 * static_cast<int>(limit_s) * 1s);
    } else if (of.how == "simulates") { // elsewhere, while this process waits
        std::this_thread::sleep_for(3 * limit_s * 1s);
    } else if (of.how == "beats") {
        for (int i = 0; i < 30; ++i) {
            std::this_thread::sleep_for(limit_s / 10 * 1s);
            worker.heartbeat();
        }
    }
}

/// Six steps, each reported.
auto steps_of(const Case& of, bool disturbed) {
    return [=](auto& worker) {
        int step = 0;
        auto state = rtrain::State{}.add("step", step);
        worker.restore(state);
        const bool restarted = step > 0;
        while (step < 6) {
            ++step;
            if (of.how == "throws-then-sleeps" && step == 3 && worker.rank() == of.rank) {
                if (!restarted) {
                    throw std::runtime_error("bad luck");
                }
                std::this_thread::sleep_for(1h);
            }
            if (of.how == "paused") {
                std::this_thread::sleep_for(300ms);
            }
            if (disturbed && step == 3) {
                disturb(of, worker);
            }
            worker.report({{"step", step}}, state);
        }
        if (of.how == "outstays" && worker.rank() == of.rank) {
            std::this_thread::sleep_for(1h);
        }
    };
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        return 2;
    }
    const Case of{argv[1], std::atoi(argv[2]), argv[3]};
    try {
        const bool in_second = of.how == "sleeps-in-second";
        rtrain::Trainer<>(options(of, "first")).fit(steps_of(of, !in_second));
        if (in_second || of.how == "paused") {
            // Outside of fit() a program may do what it likes.
            std::this_thread::sleep_for(of.rank == rtrain::launch::env_int("OMPI_COMM_WORLD_RANK")
                                            ? 2 * limit_s * 1s
                                            : 0.0 * 1s);
            std::cout << "SECOND" << std::endl;
            rtrain::Trainer<>(options(of, "second")).fit(steps_of(of, true));
        }
        std::cout << "RESULT" << std::endl;
    } catch (const rtrain::Error& error) {
        std::cout << "ERROR " << error.what() << std::endl;
        return 3;
    }
}
