// SPDX-License-Identifier: Apache-2.0
/// @file
/// BoostingTrainer: XGBoostTrainer and LightGBMTrainer, which need no training function.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/order/permuted.hpp>
#include <rtrain/gbdt/options.hpp>
#include <rtrain/gbdt/training.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/trainer.hpp>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

/// Options of XGBoostTrainer and LightGBMTrainer.
struct BoostingOptions {
    Config params{};            ///< parameters of the library
    std::string label_column{}; ///< of all data sets
    int num_boost_round = 10;   ///< rounds of training
    ScalingConfig scaling{};    ///< the number of ranks and their resources
    /// Name, storage and behavior of the run. `checkpoint.frequency`: rounds between two
    /// checkpoints; 0: only the last round saves one.
    RunConfig run{};
    /// "train", and others, which are evaluated after each round, as "train" is.
    data::Datasets datasets{};
    std::optional<Checkpoint> resume_from{}; ///< whose model the training continues
    Config metadata{};                       ///< of every checkpoint
    /// Called on each rank after each round, before its report.
    std::vector<std::function<void(const gbdt::Round&)>> callbacks{};
    std::optional<int> early_stopping_rounds{}; ///< see gbdt::TrainOptions
    gbdt::Ranks ranks = gbdt::Ranks::one_per_node;
    std::string weight_column{};
    std::vector<std::string> base_margin_columns{};
    std::string query_column{};
    std::string label_lower_bound_column{};
    std::string label_upper_bound_column{};
    std::vector<std::string> categorical_columns{};
    /// Metrics to report, and changes to them; its frequency is `run.checkpoint.frequency`.
    gbdt::ReportCallback report{};
};

namespace detail {

/// The training function of a BoostingTrainer.
template <class Library>
struct TrainBoosting {
    gbdt::TrainOptions options;

    template <class Worker>
    void operator()(Worker& worker, const Config& config) const {
        gbdt::TrainOptions now = options;
        now.num_boost_round = config.at("num_boost_round").to_number<int>();
        (void)gbdt::train<Library>(worker, config.at("params").as_object(), now);
    }
};

} // namespace detail

/// Trains a model of a boosting library on all ranks. See Trainer for what fit() does.
template <class Library>
class BoostingTrainer {
public:
    using Options = BoostingOptions;
    using Booster = typename Library::Booster;
    using Runner = Trainer<backend::Mpi, data::Permuted>;
    using Function = detail::TrainBoosting<Library>;

    /// Throws ConfigError for invalid options.
    explicit BoostingTrainer(const Options& options)
        : function_{train_options(options)}, trainer_(trainer_options(options)) {
        gbdt::require_usable(function_.options);
    }

    /// Throws like Trainer::fit().
    Result fit() { return trainer_.fit(function_); }

    /// Returns the model in a checkpoint. Throws CheckpointError [RT-G14], ModelError [RT-G11].
    [[nodiscard]] static Booster get_model(const Checkpoint& checkpoint,
                                           const std::string& filename = Library::filename) {
        return Booster::load(gbdt::model_file(
            checkpoint, filename,
            detail::concat("pass a checkpoint of ", Library::name, ", and the file's name in it")));
    }

    /// The parts of a search: `Tuner{trainer, options}`.
    [[nodiscard]] const Runner& runner() const noexcept { return trainer_; }
    [[nodiscard]] const Function& function() const noexcept { return function_; }

private:
    [[nodiscard]] static gbdt::TrainOptions train_options(const Options& options) {
        gbdt::TrainOptions train{.label_column = options.label_column,
                                 .num_boost_round = options.num_boost_round,
                                 .ranks = options.ranks,
                                 .early_stopping_rounds = options.early_stopping_rounds,
                                 .weight_column = options.weight_column,
                                 .base_margin_columns = options.base_margin_columns,
                                 .query_column = options.query_column,
                                 .label_lower_bound_column = options.label_lower_bound_column,
                                 .label_upper_bound_column = options.label_upper_bound_column,
                                 .categorical_columns = options.categorical_columns,
                                 .report = options.report,
                                 .callbacks = options.callbacks};
        train.report.frequency = options.run.checkpoint.frequency;
        if (options.datasets.contains(train.dtrain)) {
            train.evals.push_back(train.dtrain);
        }
        for (const auto& [name, rows] : options.datasets) {
            if (name != train.dtrain) {
                train.evals.push_back(name); // by name, so early stopping watches the last one
            }
        }
        return train;
    }
    [[nodiscard]] static TrainerOptions trainer_options(const Options& options) {
        return {.config = Config{{"params", options.params},
                                 {"label_column", options.label_column},
                                 {"num_boost_round", options.num_boost_round}},
                .scaling = options.scaling,
                .run = options.run,
                .datasets = options.datasets,
                .resume_from = options.resume_from,
                .metadata = options.metadata};
    }

    Function function_;
    Runner trainer_;
};

} // namespace rtrain
