// SPDX-License-Identifier: Apache-2.0
// Predictions of boosted trees for the rows of a directory of Parquet files, on all ranks: each
// rank predicts its rows, in batches, and writes them to its own file.
//
//   ./boosting_predict model.ubj rows predictions
//
// The files below `rows` have the features of the model, and may have other columns.
//
// Expected at the end: how many rows there are, and their mean prediction.
#include <rtrain/data/arrow.hpp>
#include <rtrain/xgboost.hpp>

#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

namespace {

/// With Permuted, the ranks read each row once, in batches that are consecutive in the data set.
using Predictor = rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Permuted>;

struct Predict {
    std::filesystem::path model;
    std::filesystem::path directory;

    void operator()(auto& worker) const {
        const torch::NoGradGuard no_grad; // as in an evaluation, no row is repeated
        const auto booster = rtrain::XGBoostTrainer::Booster::load(model);
        std::filesystem::create_directories(directory);
        std::ofstream file(directory / ("part-" + std::to_string(worker.rank()) + ".txt"));
        std::int64_t rows = 0;
        double sum = 0;
        for (const auto& batch : worker.dataset_shard("rows").batches({.size = 8192})) {
            const at::Tensor predictions = booster.predict(batch);
            const auto* const values = predictions.const_data_ptr<float>();
            for (std::int64_t row = 0; row < predictions.size(0); ++row) {
                file << values[row] << '\n';
            }
            rows += predictions.size(0);
            sum += predictions.sum(torch::kDouble).template item<double>();
        }
        rows = worker.all_reduce(rows);
        worker.report(
            {{"rows", rows}, {"mean", worker.all_reduce(sum) / static_cast<double>(rows)}});
    }
};

} // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::cerr << "usage: boosting_predict MODEL ROWS PREDICTIONS\n";
        return EXIT_FAILURE;
    }
    try {
        Predictor predictor{
            {.scaling = {.num_workers = rtrain::launch::ranks().value_or(2)},
             .run = {.name = "boosting-predict", .storage_path = "results", .resume = "never"},
             .datasets = {{"rows", rtrain::data::read_parquet(argv[2])}}}};
        const rtrain::Result result = predictor.fit(Predict{argv[1], argv[3]});
        std::cout << result.metric("rows") << " rows, mean prediction " << result.metric("mean")
                  << std::endl;
    } catch (const std::exception& error) {
        std::cerr << "boosting_predict: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
