// SPDX-License-Identifier: Apache-2.0
// Trains an MLP on Fashion-MNIST.
//
//   ./fashion_mnist                 two ranks on this machine
//   mpirun -n 4 ./fashion_mnist     four ranks
//
// Expected at the end: test accuracy of 88 % or more. Run again, it resumes where it stopped.
#include <rtrain/trainer.hpp>

#include <boost/describe/class.hpp>
#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <iomanip>
#include <iostream>

namespace {

struct MlpImpl : torch::nn::Module {
    torch::nn::Linear in = register_module("in", torch::nn::Linear(784, 512));
    torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(512, 512));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(512, 10));

    torch::Tensor forward(const torch::Tensor& image) {
        const auto x = torch::relu(in(image.flatten(1)));
        return out(torch::relu(hidden(x)));
    }
};
TORCH_MODULE(Mlp);

struct Hyper {
    double lr = 0.05;
    std::int64_t batch = 128; ///< rows of all ranks together
    int epochs = 10;
};
BOOST_DESCRIBE_STRUCT(Hyper, (), (lr, batch, epochs))

struct TrainFashionMnist {
    void operator()(auto& worker, const Hyper& hyper) const {
        torch::manual_seed(0);
        auto model = worker.prepare(Mlp{});
        torch::optim::SGD optimizer(model->parameters(),
                                    torch::optim::SGDOptions(hyper.lr).momentum(0.9));
        torch::optim::StepLR schedule(optimizer, 3, 0.4);
        auto state = rtrain::State{}
                         .add("model", model)
                         .add("optimizer", optimizer)
                         .add("schedule", schedule);
        auto batches = worker.dataset_shard("train").batches(
            {.size = hyper.batch / worker.size(), .shuffle = true});

        for (const int epoch : worker.epochs(hyper.epochs, state)) {
            auto total = torch::zeros({});
            model->train();
            for (auto& batch : batches) {
                optimizer.zero_grad();
                auto loss = torch::cross_entropy_loss(model(batch["image"]), batch["label"]);
                loss.backward();
                optimizer.step();
                total += loss.detach();
            }
            schedule.step();
            const double loss = worker.all_reduce(total.item<double>(), rtrain::ReduceOp::mean) /
                                static_cast<double>(batches.size());
            const double accuracy = test(worker, model);
            worker.report({{"loss", loss}, {"accuracy", accuracy}, {"epoch", epoch}}, state);
            if (worker.rank() == 0) {
                std::cout << std::fixed << std::setprecision(4) << "epoch " << epoch + 1 << '/'
                          << hyper.epochs << "  loss " << loss << "  test accuracy " << accuracy
                          << std::endl;
            }
        }
    }

    /// Fraction of test images that all ranks together classify correctly.
    static double test(auto& worker, auto& model) {
        const torch::NoGradGuard no_grad;
        model->eval();
        std::int64_t right = 0;
        std::int64_t seen = 0;
        for (auto& batch : worker.dataset_shard("test").batches({.size = 1000})) {
            right += model(batch["image"]).argmax(1).eq(batch["label"]).sum().template item<int>();
            seen += batch.size();
        }
        return static_cast<double>(worker.all_reduce(right)) /
               static_cast<double>(worker.all_reduce(seen));
    }
};

} // namespace

int main(int argc, char** argv) {
    using rtrain::data::Split;
    const char* const files = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
    Hyper hyper;
    if (argc > 2) {
        hyper.epochs = std::atoi(argv[2]);
    }
    try {
        rtrain::Trainer<> trainer{{
            .config = hyper,
            .scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
            .run = {.name = "fashion-mnist",
                    .storage_path = "results",
                    .checkpoint = {.num_to_keep = 2}},
            .datasets = {{"train", rtrain::data::fashion_mnist(files, Split::train)},
                         {"test", rtrain::data::fashion_mnist(files, Split::test)}},
        }};
        const rtrain::Result result = trainer.fit(TrainFashionMnist{});
        std::cout << "test accuracy " << result.metric("accuracy") << ", run in "
                  << result.path.string() << std::endl;
    } catch (const rtrain::Error& error) {
        std::cerr << "fashion_mnist: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
