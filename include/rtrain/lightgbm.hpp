// SPDX-License-Identifier: Apache-2.0
/// @file
/// LightGBM on rtrain's data sets and ranks: LightGBMTrainer, and lightgbm::train() for training
/// functions. Part of the component lightgbm: the program links rtrain::lightgbm. Guide:
/// docs/boosting.md
///
/// @code
/// rtrain::LightGBMTrainer trainer{{.params = {{"objective", "binary"}},
///                                  .label_column = "benign",
///                                  .datasets = {{"train", train}, {"valid", valid}}}};
/// const rtrain::Result result = trainer.fit();
/// @endcode
#pragma once

#include <rtrain/config/run_info.hpp>
#include <rtrain/gbdt/connection.hpp>
#include <rtrain/gbdt/lightgbm/library.hpp>
#include <rtrain/gbdt/options.hpp>
#include <rtrain/gbdt/trainer.hpp>
#include <rtrain/gbdt/training.hpp>
#include <rtrain/gbdt/training_table.hpp>

namespace rtrain {

/// Trains a model of LightGBM.
using LightGBMTrainer = BoostingTrainer<gbdt::lightgbm::Library>;

namespace lightgbm {

using gbdt::Ranks;
using gbdt::TableColumns;
using gbdt::TrainOptions;
using gbdt::lightgbm::Booster;
/// The rows that a Booster trains on or evaluates, and the connection of the ranks that train.
using Connection = gbdt::Connection<gbdt::lightgbm::Engine>;
using Dataset = gbdt::TrainingTable<gbdt::lightgbm::Engine>;
/// The same as train(), for a loop over rounds that the caller writes.
using Training = gbdt::RoundTraining<gbdt::lightgbm::Library>;

/// Trains a model in a training function; returns it on all ranks. Resumes from the model in
/// worker.checkpoint(). *Collective.* Throws ConfigError [RT-G6, RT-G8, RT-G10, RT-G13, RT-G15],
/// DataError [RT-D1, RT-G2 to RT-G5, RT-G7, RT-G9], ModelError [RT-G11, RT-G12].
template <class Worker>
Booster train(Worker& worker, const Config& params, const TrainOptions& options) {
    return gbdt::train<gbdt::lightgbm::Library>(worker, params, options);
}

} // namespace lightgbm
} // namespace rtrain
