// SPDX-License-Identifier: Apache-2.0
// Boosted trees on a table: XGBoost and LightGBM, which tumours are benign.
//
//   ./boosting examples/data/breast_cancer.csv [rounds [all]]
//
// With "all", each of the two ranks trains on its part of the rows, as two nodes would.
//
// Expected at the end: test accuracy of 93 % or more, from each library.
#include <rtrain/data/arrow.hpp>
#include <rtrain/lightgbm.hpp>
#include <rtrain/xgboost.hpp>

#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <string>

namespace {

template <class Trainer>
void train(const std::string& name, const rtrain::Config& params, int rounds,
           rtrain::gbdt::Ranks ranks, const rtrain::data::Datasets& data) {
    Trainer trainer{{.params = params,
                     .label_column = "benign",
                     .num_boost_round = rounds,
                     .scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
                     .run = {.name = "boosting-" + name,
                             .storage_path = "results",
                             .failure = {.max_failures = 3},
                             .checkpoint = {.num_to_keep = 2, .frequency = 1}},
                     .datasets = data,
                     .ranks = ranks}};
    const rtrain::Result result = trainer.fit();
    const auto model = Trainer::get_model(*result.checkpoint);
    const rtrain::data::Dataset& valid = data.at("valid");
    const at::Tensor benign = valid.take(valid.size())["benign"];
    const at::Tensor right = (model.predict(valid) > 0.5).eq(benign);
    std::cout << name << ": " << model.rounds() << " rounds, test accuracy "
              << right.to(torch::kDouble).mean().item<double>() << std::endl;
}

} // namespace

int main(int argc, char** argv) {
    try {
        const auto table = rtrain::data::read_csv(argc > 1 ? argv[1] : "breast_cancer.csv");
        const auto [rows, others] = table.train_test_split(0.3, /*seed=*/1);
        const rtrain::data::Datasets data{{"train", rows}, {"valid", others}};
        const int rounds = argc > 2 ? std::stoi(argv[2]) : 20;
        const auto ranks = argc > 3 ? rtrain::gbdt::Ranks::all : rtrain::gbdt::Ranks::one_per_node;
        train<rtrain::XGBoostTrainer>(
            "xgboost", {{"objective", "binary:logistic"}, {"eval_metric", {"logloss", "error"}}},
            rounds, ranks, data);
        train<rtrain::LightGBMTrainer>("lightgbm",
                                       {{"objective", "binary"}, {"metric", "binary_logloss"}},
                                       rounds, ranks, data);
    } catch (const rtrain::Error& error) {
        std::cerr << "boosting: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
