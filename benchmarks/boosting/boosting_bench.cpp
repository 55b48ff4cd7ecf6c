// SPDX-License-Identifier: Apache-2.0
// Trains one library on a table in memory, by rtrain; see run.py.
//
//   boosting_bench LIBRARY ROWS COLUMNS ROUNDS DIRECTORY nodes|all
#include <rtrain/lightgbm.hpp>
#include <rtrain/xgboost.hpp>

#include <torch/torch.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <string>

namespace {

/// The table of peer.py, too: float32 from a file that run.py has written.
rtrain::data::Dataset table(const std::filesystem::path& directory, std::int64_t rows,
                            std::int64_t columns) {
    return rtrain::data::lazy([=] {
        const auto read = [&](const char* name, std::vector<std::int64_t> shape) {
            return torch::from_file((directory / name).string(), false,
                                    c10::multiply_integers(shape), torch::kFloat)
                .view(shape);
        };
        return rtrain::data::from_tensors(
            {{"x", read("x.f4", {rows, columns})}, {"y", read("y.f4", {rows})}});
    });
}

template <class Trainer>
void measure(const rtrain::Config& params, char** argv) {
    const auto rows = std::stoll(argv[2]);
    const int rounds = std::stoi(argv[4]);
    const std::filesystem::path directory = argv[5];
    const bool is_first = rtrain::launch::rank().value_or(0) == 0;
    const auto begin = std::chrono::steady_clock::now();
    Trainer trainer{
        {.params = params,
         .label_column = "y",
         .num_boost_round = rounds,
         .run = {.name = "bench", .storage_path = directory / "runs", .resume = "never"},
         .datasets = {{"train", table(directory, rows, std::stoll(argv[3]))}},
         .ranks = std::string(argv[6]) == "all" ? rtrain::gbdt::Ranks::all
                                                : rtrain::gbdt::Ranks::one_per_node}};
    const rtrain::Result result = trainer.fit();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (is_first) {
        std::cout << "{\"seconds\": " << took.count()
                  << ", \"metrics\": " << boost::json::serialize(result.metrics) << "}"
                  << std::endl;
    }
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 7) {
        std::cerr << "usage: boosting_bench LIBRARY ROWS COLUMNS ROUNDS DIRECTORY nodes|all\n";
        return 2;
    }
    try {
        if (std::string(argv[1]) == "xgboost") {
            measure<rtrain::XGBoostTrainer>(
                {{"objective", "binary:logistic"}, {"eval_metric", "logloss"}}, argv);
        } else {
            measure<rtrain::LightGBMTrainer>(
                {{"objective", "binary"}, {"metric", "binary_logloss"}}, argv);
        }
    } catch (const rtrain::Error& error) {
        std::cerr << error.what() << std::endl;
        return 1;
    }
}
