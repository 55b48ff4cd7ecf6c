// SPDX-License-Identifier: Apache-2.0
// Trains one library by rtrain, predicts with its model, and measures reports; see run.py. Prints a
// line of JSON.
//
//   boosting_bench train LIBRARY ROUNDS SOURCE RUNS nodes|all
//   boosting_bench predict LIBRARY MODEL SOURCE RUNS
//   boosting_bench reports SOURCE RUNS
//
// SOURCE is a directory of Parquet files, or one that has the float32 arrays x.f4 and y.f4.
#include <rtrain/data/arrow.hpp>
#include <rtrain/lightgbm.hpp>
#include <rtrain/xgboost.hpp>

#include <torch/torch.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <type_traits>
#include <utility>

namespace {

namespace fs = std::filesystem;
using rtrain::Config;

double seconds_of(const std::function<void()>& action) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void print(const Config& result) {
    if (rtrain::launch::rank().value_or(0) == 0) {
        std::cout << rtrain::json::serialize(result) << std::endl;
    }
}

/// The table in memory is the files' own: peers map them, too.
rtrain::data::Dataset table(const fs::path& source) {
    if (!fs::exists(source / "x.f4")) {
        return rtrain::data::read_parquet(source.string());
    }
    return rtrain::data::lazy([=] {
        const auto read = [&](const char* name) {
            const auto file = (source / name).string();
            const auto count = static_cast<std::int64_t>(fs::file_size(file) / sizeof(float));
            return torch::from_file(file, false, count, torch::kFloat);
        };
        const at::Tensor y = read("y.f4");
        return rtrain::data::from_tensors({{"x", read("x.f4").view({y.size(0), -1})}, {"y", y}});
    });
}

template <class Trainer>
Config params() {
    return std::is_same_v<Trainer, rtrain::XGBoostTrainer>
               ? Config{{"objective", "binary:logistic"}, {"eval_metric", {"logloss", "error"}}}
               : Config{{"objective", "binary"}, {"metric", {"binary_logloss", "binary_error"}}};
}

template <class Trainer>
const char* filename_of() {
    return std::is_same_v<Trainer, rtrain::XGBoostTrainer> ? "model.ubj" : "model.txt";
}

template <class Trainer>
rtrain::BoostingOptions options(int rounds, const fs::path& source, const fs::path& runs) {
    return {.params = params<Trainer>(),
            .label_column = "y",
            .num_boost_round = rounds,
            .run = {.name = "bench", .storage_path = runs, .resume = "never"},
            .datasets = {{"train", table(source)}}};
}

struct Train {
    template <class Trainer>
    void run(char** argv) const {
        auto chosen = options<Trainer>(std::stoi(argv[3]), argv[4], argv[5]);
        if (std::string(argv[6]) == "all") {
            chosen.ranks = rtrain::gbdt::Ranks::all;
        }
        rtrain::Result result;
        const double took = seconds_of([&] { result = Trainer(chosen).fit(); });
        print({{"seconds", took},
               {"metrics", result.metrics},
               {"model", (result.checkpoint->as_directory() / filename_of<Trainer>()).string()}});
    }
};

struct Predict {
    template <class Trainer>
    void run(char** argv) const {
        using Predictor = rtrain::Trainer<rtrain::backend::Mpi, rtrain::data::Permuted>;
        rtrain::Result result;
        const double took = seconds_of([&] {
            Predictor predictor{
                {.run = {.name = "predict", .storage_path = argv[5], .resume = "never"},
                 .datasets = {{"rows", table(argv[4])}}}};
            result = predictor.fit([&](auto& worker) {
                const torch::NoGradGuard no_grad;
                const auto booster = Trainer::Booster::load(argv[3]);
                std::int64_t rows = 0;
                double sum = 0;
                for (const auto& batch : worker.dataset_shard("rows").batches({.size = 8192})) {
                    const at::Tensor odds = booster.predict(batch);
                    rows += odds.size(0);
                    sum += odds.sum(torch::kDouble).template item<double>();
                }
                rows = worker.all_reduce(rows);
                worker.report(
                    {{"rows", rows}, {"mean", worker.all_reduce(sum) / static_cast<double>(rows)}});
            });
        });
        print({{"seconds", took}, {"metrics", result.metrics}});
    }
};

/// What a report costs in a round, without the start of the run, and one with a checkpoint, next to
/// writing and syncing its file.
void measure_reports(const fs::path& source, const fs::path& runs) {
    using rtrain::XGBoostTrainer;
    constexpr int rounds = 1000;
    constexpr int saves = 50;
    const auto train = [&](int count, int frequency) {
        auto chosen = options<XGBoostTrainer>(count, source, runs);
        chosen.run.name = "reports-" + std::to_string(frequency);
        chosen.run.checkpoint = {.num_to_keep = 1, .frequency = frequency};
        return seconds_of([&] { (void)XGBoostTrainer(chosen).fit(); });
    };
    std::string content;
    const auto alone = [&] {
        using rtrain::gbdt::TableReader;
        namespace xgboost = rtrain::gbdt::xgboost;
        const auto parameters =
            xgboost::Library::parameters(params<XGBoostTrainer>(), {.threads = 1});
        TableReader<float> rows(table(source), {.label = "y"}, {});
        xgboost::begin();
        const xgboost::Matrix matrix(rows, {.threads = 1});
        xgboost::Model model({matrix.get()});
        model.set(parameters);
        return seconds_of([&] {
            for (int round = 0; round < rounds; ++round) {
                model.update(round, matrix);
                (void)model.evaluate(round, {{"train", &matrix}});
            }
            content = model.saved();
        });
    };
    (void)train(1, 0); // loads what the first run needs
    const double start = train(1, 0);
    const double library = alone();
    const double reports = train(rounds, 0);
    const double checkpoints = train(rounds, rounds / saves);
    const double write = seconds_of([&] {
        for (std::size_t i = 1; i <= saves; ++i) { // as large as the growing model
            rtrain::storage::replace_file(runs / "written",
                                          content.substr(0, content.size() * i / saves));
        }
    });
    print({{"report_ms", (reports - start - library) / rounds * 1e3},
           {"checkpoint_ms", (checkpoints - reports) / saves * 1e3},
           {"write_ms", write / saves * 1e3},
           {"bytes", content.size()}});
}

template <class Mode>
void with_library(const Mode& mode, char** argv) {
    if (std::string(argv[2]) == "xgboost") {
        mode.template run<rtrain::XGBoostTrainer>(argv);
    } else {
        mode.template run<rtrain::LightGBMTrainer>(argv);
    }
}

} // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    try {
        if (mode == "train" && argc == 7) {
            with_library(Train{}, argv);
        } else if (mode == "predict" && argc == 6) {
            with_library(Predict{}, argv);
        } else if (mode == "reports" && argc == 4) {
            measure_reports(argv[2], argv[3]);
        } else {
            std::cerr << "usage: boosting_bench train|predict|reports ...; see its source\n";
            return 2;
        }
    } catch (const rtrain::Error& error) {
        std::cerr << error.what() << std::endl;
        return 1;
    }
}
