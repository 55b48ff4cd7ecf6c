// SPDX-License-Identifier: Apache-2.0
// The cost of a step of rtrain::Fit, next to the same loop written by hand.
//
//   mpirun -n RANKS fit_bench CONTESTANT UNITS [epochs]
//
// CONTESTANT: `loop`, `fit`, or `logged`, which is `fit` with hooks and three logged values. Prints
// a line of JSON on rank 0: microseconds of a step in the fastest epoch, the same of the training
// thread's processor time, and seconds from the start of the process to the first step.
#include <rtrain/fit.hpp>
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <limits>
#include <memory>
#include <string>

#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t rows = 64;
constexpr std::int64_t steps = 100;

/// Times the epochs of this process.
struct Times {
    Clock::time_point begin;
    double cpu_begin = 0;
    double step_us = std::numeric_limits<double>::infinity();
    double cpu_us = std::numeric_limits<double>::infinity();
    double first_s = -1;

    /// Seconds since the process was started.
    static double age() {
        std::ifstream stat("/proc/self/stat");
        std::string word;
        for (int field = 0; field < 22; ++field) {
            stat >> word;
        }
        std::ifstream uptime("/proc/uptime");
        double now = 0;
        uptime >> now;
        return now - std::stod(word) / static_cast<double>(sysconf(_SC_CLK_TCK));
    }
    /// Processor time of this thread in microseconds.
    static double cpu() {
        timespec now{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
    }
    void begin_epoch() {
        begin = Clock::now();
        cpu_begin = cpu();
        first_s = first_s < 0 ? age() : first_s;
    }
    void end_epoch() {
        const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
        step_us = std::min(step_us, took.count() / steps);
        cpu_us = std::min(cpu_us, (cpu() - cpu_begin) / steps);
    }
};
Times times; // NOLINT: of the one training

struct Mlp : torch::nn::Module {
    explicit Mlp(const rtrain::Config& config) : units(config.at("units").to_number<int>()) {
        net = register_module(
            "net", torch::nn::Sequential(torch::nn::Linear(784, units), torch::nn::ReLU(),
                                         torch::nn::Linear(units, units), torch::nn::ReLU(),
                                         torch::nn::Linear(units, 10)));
    }
    at::Tensor forward(const at::Tensor& x) { return net->forward(x); }
    at::Tensor training_step(const rtrain::data::Batch& batch, rtrain::Step& /*step*/) {
        return torch::cross_entropy_loss(forward(batch["x"]), batch["y"]);
    }
    auto configure_optimizers(const rtrain::Plan& /*plan*/) {
        return torch::optim::SGD(parameters(), 0.01);
    }
    void on_train_epoch_start(rtrain::Step& /*step*/) { times.begin_epoch(); }
    void on_train_epoch_end(rtrain::Step& /*step*/) { times.end_epoch(); }
    int units;
    torch::nn::Sequential net{nullptr};
};

struct Logged : Mlp {
    using Mlp::Mlp;
    at::Tensor training_step(const rtrain::data::Batch& batch, rtrain::Step& step) {
        auto loss = Mlp::training_step(batch, step);
        step.log("a", loss);
        step.log("b", loss);
        step.log("c", 1.0);
        return loss;
    }
    void on_train_batch_start(const rtrain::data::Batch& batch, rtrain::Step& /*step*/) {
        seen += batch.size();
    }
    void on_train_batch_end(const rtrain::data::Batch& batch, rtrain::Step& /*step*/) {
        seen += batch.size();
    }
    void on_before_optimizer_step(torch::optim::Optimizer& /*optimizer*/, rtrain::Step& step) {
        seen += step.steps();
    }
    std::int64_t seen = 0;
};

struct Loop {
    int epochs;
    void operator()(auto& worker, const rtrain::Config& config) const {
        auto model = worker.prepare(std::make_shared<Mlp>(config));
        auto optimizer = worker.prepare(torch::optim::SGD(model->parameters(), 0.01));
        auto state = rtrain::State{}.add("model", model).add("optimizer", optimizer);
        auto batches = worker.dataset_shard("train").batches({.size = rows, .shuffle = true});
        for (const int epoch : worker.epochs(epochs, state)) {
            times.begin_epoch();
            double sum = 0;
            for (auto& batch : batches) {
                const auto loss = torch::cross_entropy_loss(model(batch["x"]), batch["y"]);
                sum += *loss.template const_data_ptr<float>();
                optimizer.zero_grad();
                loss.backward();
                optimizer.step();
            }
            times.end_epoch();
            worker.report({{"epoch", epoch}, {"loss", sum}}, state);
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    const std::string contestant = argc > 1 ? argv[1] : "fit";
    const int units = argc > 2 ? std::atoi(argv[2]) : 128;
    const int epochs = argc > 3 ? std::atoi(argv[3]) : 10;
    const int ranks = rtrain::launch::ranks().value_or(1);
    torch::manual_seed(0);
    const auto x = torch::randn({rows * steps * ranks, 784});
    const auto y = torch::randint(10, {rows * steps * ranks}, torch::kLong);
    rtrain::Trainer<> trainer{
        {.config = {{"units", units}},
         .scaling = {.threads_per_worker = 1},
         .run = {.name = contestant, .storage_path = "fit_bench", .resume = rtrain::Resume::never},
         .datasets = {{"train", rtrain::data::from_tensors({{"x", x}, {"y", y}})}}}};
    const rtrain::FitOptions options{.max_epochs = epochs, .batch_size = rows};
    if (contestant == "loop") {
        trainer.fit(Loop{epochs});
    } else if (contestant == "logged") {
        trainer.fit(rtrain::Fit<Logged>{options});
    } else {
        trainer.fit(rtrain::Fit<Mlp>{options});
    }
    if (rtrain::launch::env_int("OMPI_COMM_WORLD_RANK").value_or(0) == 0) {
        std::printf("{\"contestant\": \"%s\", \"units\": %d, \"ranks\": %d, \"step_us\": %.2f, "
                    "\"cpu_us\": %.2f, \"first_s\": %.3f}\n",
                    contestant.c_str(), units, ranks, times.step_us, times.cpu_us, times.first_s);
    }
}
