// SPDX-License-Identifier: Apache-2.0
/// @file
/// XGBoost on rtrain's data sets and ranks: XGBoostTrainer, and xgboost::train() for training
/// functions. Part of the component xgboost: the program links rtrain::xgboost. Guide:
/// docs/boosting.md
///
/// @code
/// rtrain::XGBoostTrainer trainer{{.params = {{"objective", "binary:logistic"}},
///                                 .label_column = "benign",
///                                 .datasets = {{"train", train}, {"valid", valid}}}};
/// const rtrain::Result result = trainer.fit();
/// @endcode
#pragma once

#include <rtrain/config/run_info.hpp>
#include <rtrain/gbdt/connection.hpp>
#include <rtrain/gbdt/options.hpp>
#include <rtrain/gbdt/trainer.hpp>
#include <rtrain/gbdt/training.hpp>
#include <rtrain/gbdt/training_table.hpp>
#include <rtrain/gbdt/xgboost/library.hpp>

namespace rtrain {

/// Trains a model of XGBoost.
using XGBoostTrainer = BoostingTrainer<gbdt::xgboost::Library>;

namespace xgboost {

using gbdt::Ranks;
using gbdt::TableColumns;
using gbdt::TrainOptions;
using gbdt::xgboost::Booster;
/// The rows that a Booster trains on or evaluates, and the connection of the ranks that train.
using Connection = gbdt::Connection<gbdt::xgboost::Engine>;
using DMatrix = gbdt::TrainingTable<gbdt::xgboost::Engine>;
/// The same as train(), for a loop over rounds that the caller writes.
using Training = gbdt::RoundTraining<gbdt::xgboost::Library>;

/// Trains a model in a training function; returns it on all ranks. Resumes from the model in
/// worker.checkpoint(). *Collective.* Throws ConfigError [RT-G1, RT-G6, RT-G8, RT-G10, RT-G13,
/// RT-G15], DataError [RT-D1, RT-G2 to RT-G5, RT-G7, RT-G9], ModelError [RT-G11, RT-G12].
template <class Worker>
Booster train(Worker& worker, const Config& params, const TrainOptions& options) {
    return gbdt::train<gbdt::xgboost::Library>(worker, params, options);
}

} // namespace xgboost
} // namespace rtrain
