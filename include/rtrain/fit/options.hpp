// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of Fit.
#pragma once

#include <rtrain/model/options/options.hpp>
#include <rtrain/model/options/sharded_options.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace rtrain {

/// Treatment of the batches at the end of an epoch that do not fill a window of
/// FitOptions::accumulate.
enum class LastWindow : unsigned char {
    step,  ///< a step, whose loss is divided by their number
    carry, ///< the next epoch completes the window; checkpoints hold its gradients
    drop   ///< they are left out
};

/// The type in which a model computes; parameters stay float32.
enum class Precision : unsigned char {
    float32,
    bfloat16, ///< under autocast
    float16   ///< under autocast, with a GradScaler
};

/// Options of Fit, for designated initializers. Names and defaults follow Lightning's Trainer; its
/// steps are optimizer steps everywhere. All ranks pass the same.
struct FitOptions {
    /// Unset: 1, or as many as max_steps needs.
    std::optional<int> max_epochs{};
    /// Step::stop() has no effect before the end of this many epochs. RunConfig::stop does.
    int min_epochs = 0;
    std::int64_t max_steps = 0; ///< optimizer steps, after which the run stops; 0: no limit

    std::int64_t batch_size = 1; ///< rows in a batch of a rank
    bool shuffle = true;         ///< of the training rows
    int threads = 0;             ///< of a rank, reading batches ahead: BatchOptions::threads
    /// Batches of a rank in a step. With ReductionOrder::micro_batches those of all ranks, whose
    /// number must divide it.
    int accumulate = 1;
    LastWindow last_window = LastWindow::step; ///< batches that fill no window

    double clip_norm = 0;                     ///< largest norm of all gradients; 0: any
    double clip_value = 0;                    ///< largest element of a gradient; 0: any
    Precision precision = Precision::float32; ///< in which the model computes

    int val_every_epochs = 1;             ///< validates, if there are rows to validate on
    std::int64_t val_every_steps = 0;     ///< instead: after every so many steps; 0: off
    std::int64_t limit_train_batches = 0; ///< of a rank in an epoch; 0: all
    std::int64_t limit_val_batches = 0;   ///< of a rank in a validation; 0: all
    /// Trains and validates on the first so many batches, without shuffling; 0: off.
    std::int64_t overfit_batches = 0;
    /// One epoch of so many batches, also of validation; 0: off. RunConfig::fast_dev_run does it
    /// without leaving a run.
    std::int64_t fast_dev_run = 0;
    /// Batches on which validation is tried before a new run trains; 0: none.
    std::int64_t sanity_val_batches = 2;

    /// Set: worker.enable_reproducibility(seed).
    std::optional<std::uint64_t> seed{};
    bool detect_anomaly =
        false; ///< torch::autograd::DetectAnomalyGuard: names NaN's operator; slow

    /// Options of worker.prepare(model); `precision` sets autocast.
    std::variant<DataParallelOptions, ShardedOptions> prepare{};
    std::string train = "train"; ///< data set to train on
    std::string val = "val";     ///< data set to validate on; may be absent
    std::string test = "test";   ///< data set of Fit::test() and Fit::predict()
};

} // namespace rtrain
