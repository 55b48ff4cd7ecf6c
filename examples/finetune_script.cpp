// SPDX-License-Identifier: Apache-2.0
// Fine-tunes a network that was written in Python, on Fashion-MNIST: its backbone is frozen, its
// head is trained.
//
//   python3 examples/finetune_script/export.py net.pt           writes the network
//   ./finetune_script net.pt tuned.pt                           trains it on two ranks
//   python3 examples/finetune_script/classify.py tuned.pt       uses the trained network
#include <rtrain/script.hpp>
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <string>

namespace {

struct Finetune {
    std::string network; ///< that Python exported
    std::string tuned;   ///< for Python

    void operator()(auto& worker, const rtrain::Config& config) const {
        worker.enable_reproducibility(0);
        rtrain::ScriptModel script(network);
        for (auto& item : script->named_parameters()) {
            item.value().set_requires_grad(item.key().starts_with("head."));
        }
        script->eval();
        script->named_children()["head"]->train();

        auto model = worker.prepare(script);
        torch::optim::AdamW optimizer(model->parameters(), 1e-3);
        auto state = rtrain::State{}.add("model", model).add("optimizer", optimizer);
        auto batches =
            worker.dataset_shard("train").batches({.size = 128 / worker.size(), .shuffle = true});
        for (const int epoch : worker.epochs(config.at("epochs").to_number<int>(), state)) {
            auto total = torch::zeros({});
            for (auto& batch : batches) {
                optimizer.zero_grad();
                auto loss = torch::cross_entropy_loss(model(batch["image"]), batch["label"]);
                loss.backward();
                optimizer.step();
                total += loss.detach();
            }
            const double loss = worker.all_reduce(total.item<double>(), rtrain::ReduceOp::mean) /
                                static_cast<double>(batches.size());
            worker.report({{"loss", loss}, {"accuracy", test(worker, model)}, {"epoch", epoch}},
                          state);
        }
        if (worker.rank() == 0) {
            rtrain::save_script(model, tuned, {.evaluation = true});
        }
    }

    /// Fraction of test images that all ranks together classify correctly.
    static double test(auto& worker, auto& model) {
        const torch::NoGradGuard no_grad;
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
    if (argc < 3) {
        std::cerr << "usage: finetune_script <net.pt> <tuned.pt> [epochs] [storage path] [files]\n";
        return 2;
    }
    const std::string files = argc > 5 ? argv[5] : "/usr/share/datasets/fashion-mnist";
    try {
        rtrain::Trainer<> trainer{{
            .config = {{"epochs", argc > 3 ? std::atoi(argv[3]) : 3}},
            .scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
            .run = {.name = "finetune-script", .storage_path = argc > 4 ? argv[4] : "results"},
            .datasets = {{"train", rtrain::data::fashion_mnist(files, Split::train)},
                         {"test", rtrain::data::fashion_mnist(files, Split::test)}},
        }};
        const rtrain::Result result = trainer.fit(Finetune{argv[1], argv[2]});
        std::cout << "test accuracy " << result.metric("accuracy") << ", network in " << argv[2]
                  << std::endl;
    } catch (const rtrain::Error& error) {
        std::cerr << "finetune_script: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
