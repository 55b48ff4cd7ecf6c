// SPDX-License-Identifier: Apache-2.0
/// @file
/// CreatorTrainable: a search over what creators make.
#pragma once

#include <rtrain/config/typed_config.hpp>
#include <rtrain/creators/creator_run.hpp>

#include <optional>
#include <utility>

namespace rtrain {

/// A training function whose step is train() and validate() of a CreatorTrainer, for a Tuner of a
/// trainer, on any number of ranks per trial. Each step is a report, with the values of both, and
/// saves a checkpoint. The creators receive the trial's configuration.
///
/// @code
/// rtrain::Tuner tuner{rtrain::Trainer<>{{.scaling = {.num_workers = 2}}},
///                     rtrain::CreatorTrainable{creator_options, 20}, tuner_options};
/// @endcode
template <class Options>
struct CreatorTrainable {
    Options options; ///< creators, batch_size, columns, schedule; the trainer has the rest
    int epochs = 10; ///< steps, unless the search stops the trial

    template <class W>
    void operator()(W& worker, const Config& config) const {
        Options own = options;
        own.config = config;
        const detail::CreatorSettings settings = detail::settings_of(own);
        detail::Replica<W, Options> replica(worker, own, settings);
        State state;
        replica.add_to(state);
        auto steps = worker.epochs(epochs, state);
        replica.use_data("", "");
        for ([[maybe_unused]] const int epoch : steps) {
            detail::BatchSums trained;
            replica.train_epoch(trained, std::nullopt);
            const double rate = replica.learning_rate();
            replica.end_epoch();
            Config metrics = to_config(detail::train_stats(worker, trained, rate));
            if (replica.can_validate()) {
                detail::BatchSums validated;
                replica.validate(validated);
                for (const auto& item :
                     detail::metrics_of(detail::validation_stats(worker, validated))) {
                    metrics[item.key()] = item.value();
                }
            }
            worker.report(metrics, state);
        }
    }
};

template <class Options>
CreatorTrainable(Options) -> CreatorTrainable<Options>;
template <class Options>
CreatorTrainable(Options, int) -> CreatorTrainable<Options>;

} // namespace rtrain
