// SPDX-License-Identifier: Apache-2.0
// Ten train() calls of a CreatorTrainer, or ten epochs of fit(), on two ranks; prints a line of
// JSON. run.py starts it.
//
//   creators_bench creators|fit|idle DIRECTORY
#include <rtrain/creators.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int epochs = 10;
constexpr std::int64_t size = 6400;
constexpr std::int64_t batch = 64; // of both ranks

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

torch::nn::Sequential make_model() {
    return torch::nn::Sequential(torch::nn::Linear(64, 256), torch::nn::ReLU(),
                                 torch::nn::Linear(256, 256), torch::nn::ReLU(),
                                 torch::nn::Linear(256, 1));
}
rtrain::data::Dataset make_rows() {
    torch::manual_seed(1);
    const auto x = torch::randn({size, 64});
    return rtrain::data::from_tensors({{"x", x}, {"y", x.sum(1, true)}});
}
rtrain::RunConfig run_in(const std::string& directory, const char* name) {
    return {.name = name,
            .storage_path = directory,
            .failure = {.max_failures = 1},
            .console = {.verbose = 0}};
}

/// When the first step of a call began, as another process notes it.
Clock::time_point first_step_of(const std::string& file) {
    std::ifstream text(file);
    std::int64_t ticks = 0;
    text >> ticks;
    return Clock::time_point(Clock::duration(ticks));
}

auto make_trainer(const std::string& directory, bool notes_steps = false) {
    return rtrain::CreatorTrainer{rtrain::CreatorOptions{
        .model_creator = [](const rtrain::Config&) { return make_model(); },
        .data_creator = [](const rtrain::Config&) { return make_rows(); },
        .optimizer_creator =
            [](auto& model, const rtrain::Config&) {
                return torch::optim::SGD(model->parameters(), 1e-3);
            },
        .loss_creator =
            [=](const rtrain::Config&) {
                return [=](const torch::Tensor& output, const torch::Tensor& target) {
                    if (notes_steps && rtrain::launch::rank() == 0) {
                        std::ofstream(directory + "/step")
                            << Clock::now().time_since_epoch().count();
                    }
                    return torch::mse_loss(output, target);
                };
            },
        .num_replicas = 2,
        .batch_size = batch,
        .run = run_in(directory, "creators"),
        .threads_per_worker = 1}};
}

void measure_creators(const std::string& directory) {
    const auto started = Clock::now();
    auto trainer = make_trainer(directory);
    (void)trainer.train();
    const double first_s = seconds_since(started);
    const auto begin = Clock::now();
    for (int epoch = 0; epoch < epochs; ++epoch) {
        (void)trainer.train();
    }
    const double epochs_s = seconds_since(begin);
    std::vector<double> calls;
    trainer.shutdown();
    auto noting = make_trainer(directory + "/noting", true);
    for (int i = 0; i < 15; ++i) {
        const auto call = Clock::now();
        (void)noting.train({.num_steps = 1});
        const auto step = first_step_of(directory + "/noting/step");
        calls.push_back(std::chrono::duration<double>(step - call).count());
    }
    std::ranges::sort(calls);
    std::printf("{\"epochs_s\":%g,\"first_s\":%g,\"call_s\":%g}\n", epochs_s, first_s,
                calls[calls.size() / 2]);
}

void measure_fit(const std::string& directory) {
    rtrain::Trainer<> trainer{
        {.scaling = {.num_workers = 2, .threads_per_worker = 1}, .run = run_in(directory, "fit")}};
    (void)trainer.fit([](auto& worker) {
        auto model = worker.prepare(make_model());
        torch::optim::SGD optimizer(model->parameters(), 1e-3);
        auto state = rtrain::State{}.add("model", model).add("optimizer", optimizer);
        auto batches = worker.dataset_shard("train", make_rows())
                           .batches({.size = batch / 2, .shuffle = true});
        auto begin = Clock::now();
        for (const int epoch : worker.epochs(epochs + 1, state)) {
            double sum = 0;
            for (auto& rows : batches) {
                optimizer.zero_grad();
                auto loss = torch::mse_loss(model->forward(rows["x"]), rows["y"]);
                loss.backward();
                optimizer.step();
                sum += loss.template item<double>();
            }
            worker.report({{"loss", worker.all_reduce(sum)}}, state);
            begin = epoch == 0 ? Clock::now() : begin;
        }
        if (worker.rank() == 0) {
            std::printf("{\"epochs_s\":%g}\n", seconds_since(begin));
            std::fflush(stdout);
        }
    });
}

/// run.py measures the processes meanwhile.
void idle(const std::string& directory) {
    auto trainer = make_trainer(directory);
    (void)trainer.train();
    std::printf("{\"idle\":true}\n");
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(30));
}

} // namespace

int main(int /*count*/, char** words) {
    const std::string what = words[1];
    what == "creators" ? measure_creators(words[2])
    : what == "fit"    ? measure_fit(words[2])
                       : idle(words[2]);
}
