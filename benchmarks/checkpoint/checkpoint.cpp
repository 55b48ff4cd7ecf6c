// SPDX-License-Identifier: Apache-2.0
// What checkpoints of a 512 MB state cost a training loop, through rtrain's public interface alone.
//
//   mpirun -n 2 ./checkpoint_bench POLICY FRESH_DIRECTORY CHECKPOINTS
//
// Rank 0 prints JSON lines: one for each checkpoint, then one for each load. peers.py does the same
// with the same state and the same steps in Python.
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <future>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// How many tensors of how many float32; together 32 tensors of 512 MB.
const std::vector<std::pair<int, std::int64_t>> tensors{
    {5, 16'000'000}, {3, 8'000'000}, {4, 4'000'000}, {6, 1'000'000}, {4, 250'000}, {10, 100'000}};
constexpr int quiet_steps = 5;
constexpr int loads = 3;

struct ModelImpl : torch::nn::Module {
    ModelImpl() {
        int number = 0;
        for (const auto& [count, elements] : tensors) {
            for (int i = 0; i < count; ++i, ++number) {
                const auto values = torch::randn({elements / 1000, 1000});
                register_parameter("p" + std::to_string(number), values);
            }
        }
    }
};
TORCH_MODULE(Model);

/// A step: something to compute, and an update of all parameters. Returns its seconds.
double step(Model& model) {
    static const auto matrix = torch::randn({512, 512});
    const torch::NoGradGuard no_grad;
    const auto start = Clock::now();
    auto product = matrix;
    for (int i = 0; i < 3; ++i) {
        product = torch::tanh(torch::mm(product, matrix));
    }
    const double rate = 1e-6 * product[0][0].item<double>();
    for (auto& parameter : model->parameters()) {
        parameter.add_(rate);
    }
    return seconds_since(start);
}

/// Some values of each parameter, to know a state by.
std::vector<torch::Tensor> fingerprint(Model& model) {
    std::vector<torch::Tensor> parts;
    for (const auto& parameter : model->parameters()) {
        parts.push_back(parameter.detach()[-1].clone());
    }
    return parts;
}

void require_equal(const std::vector<torch::Tensor>& left,
                   const std::vector<torch::Tensor>& right) {
    for (std::size_t i = 0; i < left.size(); ++i) {
        if (!torch::equal(left[i], right[i])) {
            throw std::runtime_error("the state that was loaded is not the one that was saved");
        }
    }
}

void print(auto& worker, const rtrain::Config& line) {
    if (worker.rank() == 0) {
        std::cout << boost::json::serialize(line) << std::endl;
    }
}

/// The largest of all ranks' values.
double slowest(auto& worker, double seconds) {
    return worker.all_reduce(seconds, rtrain::ReduceOp::max);
}

std::filesystem::path committed(auto& worker, int number) {
    char name[32];
    std::snprintf(name, sizeof name, "checkpoint_%06d", number);
    return worker.run_path() / name;
}

/// Takes checkpoints. Training goes on until each is committed, so what is written while it does
/// slows it down as in real training.
void measure_saving(auto& worker, int checkpoints, std::vector<torch::Tensor>& saved) {
    torch::manual_seed(0);
    Model model;
    const auto state = rtrain::State{}.add("model", model);
    for (int number = 0; number < checkpoints; ++number) {
        double quiet = 0;
        for (int i = 0; i < quiet_steps; ++i) {
            quiet += step(model) / quiet_steps;
        }
        saved = fingerprint(model);
        worker.barrier();
        const auto start = Clock::now();
        worker.report({{"number", number}}, state);
        const double blocked = seconds_since(start);
        auto durable = std::async(std::launch::async, [&] {
            while (!std::filesystem::exists(committed(worker, number))) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            return seconds_since(start);
        });
        double slowed = 0;
        const auto pending = [&] {
            return durable.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready;
        };
        while (worker.all_reduce(pending() ? 1 : 0, rtrain::ReduceOp::max) != 0) {
            slowed += step(model) - quiet;
        }
        print(worker, {{"checkpoint", number},
                       {"blocked_s", slowest(worker, blocked)},
                       {"durable_s", slowest(worker, durable.get())},
                       {"slowed_s", slowest(worker, slowed)},
                       {"step_s", slowest(worker, quiet)}});
    }
}

/// Resumes, and loads some times more.
void measure_loading(auto& worker, Clock::time_point begin, std::vector<torch::Tensor>& saved) {
    Model model;
    const auto state = rtrain::State{}.add("model", model);
    for (int i = 0; i < loads; ++i) {
        const torch::NoGradGuard no_grad;
        for (auto& parameter : model->parameters()) {
            parameter.zero_();
        }
        worker.barrier();
        const auto start = Clock::now();
        worker.restore(state);
        const double seconds = seconds_since(start);
        require_equal(fingerprint(model), saved);
        rtrain::Config line{{"load_s", slowest(worker, seconds)}};
        if (i == 0) {
            line["since_fit_s"] = std::chrono::duration<double>(start - begin).count() + seconds;
        }
        print(worker, line);
    }
}

template <class C>
void measure(const std::filesystem::path& storage, int checkpoints) {
    rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Sharded, C> trainer{{
        .scaling = {.threads_per_worker = 1},
        // What loads is another function than what saves.
        .run = {.name = "run", .storage_path = storage, .resume = rtrain::Resume::always},
    }};
    std::vector<torch::Tensor> saved;
    (void)trainer.fit([&](auto& worker) { measure_saving(worker, checkpoints, saved); });
    const auto begin = Clock::now();
    (void)trainer.fit([&](auto& worker) { measure_loading(worker, begin, saved); });
}

} // namespace

int main(int argc, char** argv) {
    try {
        if (argc != 4 || !rtrain::launch::ranks()) {
            throw std::invalid_argument("run mpirun -n RANKS checkpoint_bench POLICY DIRECTORY "
                                        "CHECKPOINTS");
        }
        const std::string policy = argv[1];
        const int checkpoints = std::stoi(argv[3]);
        if (policy == "sync") {
            measure<rtrain::checkpoint::Sync>(argv[2], checkpoints);
        } else if (policy == "async") {
            measure<rtrain::checkpoint::Async>(argv[2], checkpoints);
        } else if (policy == "sharded") {
            measure<rtrain::checkpoint::Sharded>(argv[2], checkpoints);
        } else if (policy == "async-sharded") {
            measure<rtrain::checkpoint::AsyncSharded>(argv[2], checkpoints);
        } else {
            throw std::invalid_argument("there is no policy " + policy);
        }
    } catch (const std::exception& error) {
        std::cerr << "checkpoint_bench: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
