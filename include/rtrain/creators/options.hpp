// SPDX-License-Identifier: Apache-2.0
/// @file
/// CreatorOptions: the options of a CreatorTrainer.
#pragma once

#include <rtrain/backend/mpi.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/creators/settings.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace rtrain {

/// In place of a creator: the default.
struct NoCreator {};

/// Options of a CreatorTrainer, for designated initializers; the types of the creators are deduced.
/// Creators run on each rank, and must make the same everywhere.
template <class Model, class Data, class Optimizer = NoCreator, class Loss = NoCreator,
          class Scheduler = NoCreator, class B = backend::Mpi>
struct CreatorOptions {
    /// `(const Config&)`: a module, a module holder, or a shared pointer to a module.
    Model model_creator;
    /// `(const Config&)`: the training data, or a pair of it and the validation data: data sets of
    /// rtrain or torch::data, or data loaders.
    Data data_creator;
    /// `(model, const Config&)`: an optimizer, or a pair of the loss and an optimizer. Unset:
    /// torch::optim::SGD with a learning rate of 1e-4.
    Optimizer optimizer_creator{};
    /// `(const Config&)`: the loss, called with output and target. Unset: that of
    /// optimizer_creator, or torch::nn::MSELoss.
    Loss loss_creator{};
    /// `(optimizer, const Config&)`: a scheduler of torch::optim, LrSchedule or Plateau.
    Scheduler scheduler_creator{};
    SchedulerStep scheduler_step_freq = SchedulerStep::epoch;
    Config config{};           ///< passed to all creators
    NumWorkers num_replicas{}; ///< ranks; unset: one, or those of mpirun
    bool use_gpu = false;
    std::int64_t batch_size = 16; ///< rows of a step, of all ranks together
    B backend{};                  ///< or "auto", "mpi", "gloo"
    RunConfig run{};              ///< name, storage and behavior of the run
    int threads_per_worker = 0;   ///< 0: a rank's share of the cores
    /// Saves a checkpoint at the end of each train(). Unset: if FailureConfig::max_failures is not
    /// 0.
    std::optional<bool> save_every_call{};
    bool shuffle = true;         ///< the training data
    std::string input_column{};  ///< of a data set; needed if it has more than two columns
    std::string target_column{}; ///< the same
};

} // namespace rtrain
