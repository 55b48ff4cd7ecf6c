// SPDX-License-Identifier: Apache-2.0
// How deep the trees of XGBoost are to be, and how much each learns: a search, which ends bad
// trials early.
//
//   ./boosting_tune examples/data/breast_cancer.csv [trials]
//
// Expected at the end: the best trial, with a loss of 0.15 or less on the validation rows.
#include <rtrain/data/arrow.hpp>
#include <rtrain/tune/schedule/asha.hpp>
#include <rtrain/tuner.hpp>
#include <rtrain/xgboost.hpp>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

namespace {

void search(const std::string& csv, int trials) {
    namespace tune = rtrain::tune;
    const auto [train, valid] = rtrain::data::read_csv(csv).train_test_split(0.3, /*seed=*/1);
    const rtrain::XGBoostTrainer trainer{
        {.params = {{"objective", "binary:logistic"}, {"eval_metric", "logloss"}},
         .label_column = "benign",
         .num_boost_round = 16,
         .datasets = {{"train", train}, {"valid", valid}}}};
    rtrain::Tuner tuner{
        trainer, rtrain::TunerOptions{
                     .param_space = {{"params", tune::Space{{"max_depth", tune::randint(1, 7)},
                                                            {"eta", tune::loguniform(0.05, 0.6)}}}},
                     .tune = {.metric = "valid-logloss",
                              .mode = "min",
                              .scheduler = tune::Asha({.max_t = 16, .grace_period = 4}),
                              .num_samples = trials,
                              .max_concurrent_trials = 1},
                     .run = {.name = "boosting-tune", .storage_path = "results"}}};
    const rtrain::ResultGrid results = tuner.fit();
    const auto& best = results.get_best_result();
    const auto model = rtrain::XGBoostTrainer::get_model(*best.checkpoint);
    std::cout << results.size() << " trials, best: " << model.rounds() << " rounds with "
              << rtrain::json::serialize(best.config.at("params")) << ", loss "
              << best.metric("valid-logloss") << std::endl;
}

} // namespace

int main(int argc, char** argv) {
    try {
        search(argc > 1 ? argv[1] : "breast_cancer.csv", argc > 2 ? std::atoi(argv[2]) : 6);
    } catch (const std::exception& error) {
        std::cerr << "boosting_tune: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
