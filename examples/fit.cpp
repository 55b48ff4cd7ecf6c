// SPDX-License-Identifier: Apache-2.0
// The program of docs/fit.md: trains a classifier of Fashion-MNIST without a loop.
//
//   ./fit                 two ranks on this machine
//   mpirun -n 4 ./fit     four ranks
//
// Expected at the end: validation accuracy of 82 % or more. Run again, it prints its result.
#include <boost/describe/class.hpp>
#include <iostream>
#include <rtrain/fit.hpp>
#include <rtrain/trainer.hpp>
#include <torch/torch.h>

struct Hyper {
    double lr = 1e-3;
};
BOOST_DESCRIBE_STRUCT(Hyper, (), (lr))

struct Classifier : torch::nn::Module {
    using Config = Hyper; // what the constructor takes
    explicit Classifier(const Hyper& hyper) : lr(hyper.lr) {}
    at::Tensor training_step(const rtrain::data::Batch& batch, rtrain::Step& step) {
        const auto scores = net->forward(batch["image"].flatten(1));
        step.log("accuracy", scores.argmax(1).eq(batch["label"]).to(at::kFloat).mean());
        return torch::cross_entropy_loss(scores, batch["label"]);
    }
    at::Tensor validation_step(const rtrain::data::Batch& batch, rtrain::Step& step) {
        return training_step(batch, step); // logged as "val/accuracy" and "val/loss"
    }
    auto configure_optimizers(const rtrain::Plan& plan) {
        namespace s = rtrain::schedule;
        return rtrain::optimize(torch::optim::AdamW(parameters(), lr),
                                s::Warmup{100}.then(s::Cosine{.steps = plan.steps() - 100}));
    }
    double lr;
    torch::nn::Sequential net =
        register_module("net", torch::nn::Sequential(torch::nn::Linear(784, 128), torch::nn::ReLU(),
                                                     torch::nn::Linear(128, 10)));
};

int main() {
    using rtrain::data::Split;
    const auto rows = [](Split split) {
        return rtrain::data::fashion_mnist("/usr/share/datasets/fashion-mnist", split);
    };
    rtrain::Trainer<> trainer{{
        .config = Hyper{.lr = 1e-3},
        .scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
        .run = {.name = "fit",
                .storage_path = "results",
                .stop = rtrain::stop::EarlyStopping{.metric = "val/loss"}},
        .datasets = {{"train", rows(Split::train)}, {"val", rows(Split::test)}},
    }};
    const rtrain::Result result = trainer.fit(rtrain::Fit<Classifier>{
        {.max_epochs = 3, .batch_size = 64, .accumulate = 4, .clip_norm = 1.0}});
    std::cout << "validation accuracy " << result.metric("val/accuracy") << ", run in "
              << result.path.string() << '\n';
}
