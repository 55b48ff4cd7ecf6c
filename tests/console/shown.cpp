// SPDX-License-Identifier: Apache-2.0
// A run that console_test.py looks at.
//
//   shown <storage path> [--ranks N | --alone] [--verbose N] [--epochs N] [--batches N]
//         [--pause MS] [--chatter N] [--fail]
//
// --alone: in this process. --chatter: each rank prints so many lines a step, to both streams.
// --pause: of each step.
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

struct Arguments {
    std::string storage;
    int ranks = 1;
    bool alone = false;
    int verbose = 1;
    int epochs = 2;
    int batches = 10;
    int pause_ms = 20;
    int chatter = 0;
    bool fail = false;
};

Arguments arguments_of(int argc, char** argv) {
    Arguments given{.storage = argv[1]};
    for (int i = 2; i < argc; ++i) {
        const std::string word = argv[i];
        const auto number = [&] { return std::atoi(argv[++i]); };
        if (word == "--ranks") {
            given.ranks = number();
        } else if (word == "--alone") {
            given.alone = true;
        } else if (word == "--verbose") {
            given.verbose = number();
        } else if (word == "--epochs") {
            given.epochs = number();
        } else if (word == "--batches") {
            given.batches = number();
        } else if (word == "--pause") {
            given.pause_ms = number();
        } else if (word == "--chatter") {
            given.chatter = number();
        } else if (word == "--fail") {
            given.fail = true;
        } else {
            throw std::invalid_argument(word);
        }
    }
    return given;
}

/// Whose names would clear the screen.
struct NetImpl : torch::nn::Module {
    NetImpl()
        : first(register_module("first", torch::nn::Linear(4, 8))),
          odd(register_module("odd\x1b[2J", torch::nn::Sequential(torch::nn::Linear(8, 8),
                                                                  torch::nn::Linear(8, 1)))) {
        first->bias.set_requires_grad(false);
    }
    torch::Tensor forward(const torch::Tensor& x) { return odd->forward(first->forward(x)); }
    torch::nn::Linear first;
    torch::nn::Sequential odd;
};
TORCH_MODULE(Net);

template <class Trainer>
void train(const Arguments& given) {
    const std::int64_t rows = 8 * given.batches * given.ranks;
    Trainer trainer{
        {.scaling = {.num_workers = given.ranks, .threads_per_worker = 1},
         .run = {.name = "run",
                 .storage_path = given.storage,
                 .checkpoint = {.score_attribute = "loss", .score_order = "min"},
                 .console = {.verbose = given.verbose}},
         .datasets = {{"train", rtrain::data::from_tensors({{"x", torch::ones({rows, 4})}})}}}};
    trainer.fit([&](auto& worker) {
        auto model = worker.prepare(Net());
        torch::optim::SGD optimizer(model->parameters(), 0.01);
        auto batches = worker.dataset_shard("train").batches({.size = 8});
        int steps = 0; // no checkpoint takes the model's names
        auto state = rtrain::State{}.add("steps", steps);
        for (int epoch : worker.epochs(given.epochs, state)) {
            double loss = 0;
            int step = 0;
            for (auto& batch : batches) {
                optimizer.zero_grad();
                auto error = model(batch["x"]).square().mean();
                error.backward();
                optimizer.step();
                loss = error.template item<double>();
                worker.log({{"step loss", loss}});
                std::this_thread::sleep_for(std::chrono::milliseconds(given.pause_ms));
                for (int i = 0; i < given.chatter; ++i) {
                    std::printf("out %d %d %d end\n", epoch, step, i);
                    std::fprintf(stderr, "err %d %d %d end\n", epoch, step, i);
                }
                std::fflush(stdout);
                ++step;
                ++steps;
            }
            if (given.fail && epoch == 1) {
                throw std::runtime_error("bad luck");
            }
            worker.report({{"loss", loss}, {"epoch", epoch}}, state);
        }
    });
}

} // namespace

int main(int argc, char** argv) {
    const Arguments given = arguments_of(argc, argv);
    try {
        if (given.alone) {
            train<rtrain::Trainer<rtrain::backend::Local>>(given);
        } else {
            train<rtrain::Trainer<>>(given);
        }
    } catch (const std::exception& error) {
        std::cerr << "threw " << error.what() << '\n';
        return 1;
    }
}
