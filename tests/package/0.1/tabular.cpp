// SPDX-License-Identifier: Apache-2.0
// Logistic regression on a table: which tumours are benign, from 30 measures of their cells.
//
//   ./tabular examples/data/breast_cancer.csv
//
// Expected at the end: test accuracy of 95 % or more.
#include <rtrain/data/arrow.hpp>
#include <rtrain/preprocess.hpp>
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace {

namespace prep = rtrain::preprocess;

struct TrainTabular {
    void operator()(rtrain::Worker<>& worker, const rtrain::Config& config) const {
        std::vector<std::string> measures;
        for (const auto& column : worker.dataset_shard("train").dataset().schema()) {
            if (column.name != "benign") {
                measures.push_back(column.name);
            }
        }
        prep::Chain chain(
            prep::StandardScaler(measures),
            prep::Concatenator(measures, {.output_column_name = "x", .dtype = torch::kFloat}));
        worker.fit(chain, "train"); // all ranks read; the test rows stay unseen

        torch::manual_seed(0);
        auto model = worker.prepare(torch::nn::Linear(static_cast<int>(measures.size()), 1));
        torch::optim::Adam optimizer(model->parameters(), config.at("lr").to_number<double>());
        auto state = rtrain::State{}
                         .add("model", model)
                         .add("optimizer", optimizer)
                         .add("preprocessor", chain);
        auto batches = worker.dataset_shard("train").batches({.size = 16, .shuffle = true});
        for (const int epoch : worker.epochs(20, state)) {
            for (const auto& raw : batches) {
                const auto batch = chain.transform(raw);
                optimizer.zero_grad();
                auto loss = torch::binary_cross_entropy_with_logits(
                    model(batch["x"]).squeeze(1), batch["benign"].to(torch::kFloat));
                loss.backward();
                optimizer.step();
            }
            worker.report({{"epoch", epoch}, {"accuracy", accuracy_of(worker, model, chain)}},
                          state);
        }
    }

    static double accuracy_of(rtrain::Worker<>& worker, auto& model, const auto& chain) {
        const torch::NoGradGuard no_grad;
        std::int64_t right = 0;
        std::int64_t seen = 0;
        for (const auto& raw : worker.dataset_shard("test").batches({.size = 64})) {
            const auto batch = chain.transform(raw);
            const auto benign = model(batch["x"]).squeeze(1) > 0;
            right += benign.eq(batch["benign"]).sum().template item<std::int64_t>();
            seen += batch.size();
        }
        return static_cast<double>(worker.all_reduce(right)) /
               static_cast<double>(worker.all_reduce(seen));
    }
};

} // namespace

int main(int argc, char** argv) {
    try {
        const auto table = rtrain::data::read_csv(argc > 1 ? argv[1] : "breast_cancer.csv");
        const auto [train, test] = table.train_test_split(0.25, /*seed=*/1);
        rtrain::Trainer<> trainer{{
            .config = {{"lr", 0.02}},
            .scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
            .run = {.name = "tabular", .storage_path = "results"},
            .datasets = {{"train", train}, {"test", test}},
        }};
        std::cout << "test accuracy " << trainer.fit(TrainTabular{}).metric("accuracy")
                  << std::endl;
    } catch (const rtrain::Error& error) {
        std::cerr << "tabular: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
