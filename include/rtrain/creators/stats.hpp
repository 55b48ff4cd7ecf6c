// SPDX-License-Identifier: Apache-2.0
/// @file
/// What train() and validate() of a CreatorTrainer take and return.
#pragma once

#include <rtrain/config/described.hpp>

#include <boost/describe/class.hpp>

#include <cstdint>
#include <optional>

namespace rtrain {

/// The argument of CreatorTrainer::train().
struct TrainCall {
    int epochs = 1;
    std::optional<std::int64_t> num_steps{}; ///< at most so many steps in each epoch
};
BOOST_DESCRIBE_STRUCT(TrainCall, (), (epochs, num_steps))

/// The result of CreatorTrainer::train(). Times are seconds per batch, averaged over batches and
/// ranks.
struct TrainStats {
    std::int64_t batch_count = 0;     ///< batches of each rank
    std::int64_t batch_processed = 0; ///< rows of all ranks
    double batch_time = 0;            ///< all of the following
    double data_time = 0;             ///< waiting for the batch, on this rank's device
    double h2d = 0;                   ///< copying it there; 0 if that overlaps with other work
    double fwd = 0;                   ///< the model and the loss
    double grad = 0;                  ///< backward, with the averaging of gradients
    double apply = 0;                 ///< the optimizer
    double train_loss = 0;            ///< mean over all rows
    double learning_rate = 0;         ///< of the last step, of the first parameter group
};
BOOST_DESCRIBE_STRUCT(TrainStats, (),
                      (batch_count, batch_processed, batch_time, data_time, h2d, fwd, grad, apply,
                       train_loss, learning_rate))

/// The result of CreatorTrainer::validate().
struct ValidationStats {
    std::int64_t batch_count = 0;          ///< batches of each rank
    double validation_loss = 0;            ///< mean over all rows
    double mean_loss = 0;                  ///< the same, under the name that searches use
    std::optional<double> mean_accuracy{}; ///< if the targets are integers
};
BOOST_DESCRIBE_STRUCT(ValidationStats, (), (batch_count, validation_loss, mean_loss, mean_accuracy))

} // namespace rtrain
