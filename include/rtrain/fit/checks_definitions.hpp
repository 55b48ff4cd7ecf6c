// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door checks.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/fit/checks.hpp>
#include <rtrain/fit/logged.hpp>

#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>
#include <variant>

namespace rtrain::detail {

RTRAIN_DOOR bool adds_by_micro_batches(const FitOptions& options) {
    const auto* const parallel = std::get_if<DataParallelOptions>(&options.prepare);
    return parallel != nullptr && parallel->reduction_order == ReductionOrder::micro_batches;
}

RTRAIN_DOOR void check_accumulate(const FitOptions& options, int accumulate, int ranks) {
    if (accumulate < 1) {
        throw ConfigError("RT-F11", concat("Fit: accumulate is ", accumulate,
                                           "; expected at least 1 batch in a step"));
    }
    if (adds_by_micro_batches(options) && accumulate % ranks != 0) {
        throw ConfigError("RT-F11",
                          concat("Fit: accumulate is ", accumulate, " on ", ranks,
                                 " ranks; with ReductionOrder::micro_batches it counts the batches "
                                 "of all ranks, so make it a multiple of their number"));
    }
}

RTRAIN_DOOR void check_fit(const FitOptions& options, const FitFacts& facts) {
    for (const auto& [name, value, least] :
         {std::tuple("max_epochs", std::int64_t{options.max_epochs.value_or(1)}, 0),
          std::tuple("min_epochs", std::int64_t{options.min_epochs}, 0),
          std::tuple("max_steps", options.max_steps, 0),
          std::tuple("val_every_epochs", std::int64_t{options.val_every_epochs}, 1),
          std::tuple("val_every_steps", options.val_every_steps, 0),
          std::tuple("limit_train_batches", options.limit_train_batches, 0),
          std::tuple("limit_val_batches", options.limit_val_batches, 0),
          std::tuple("overfit_batches", options.overfit_batches, 0),
          std::tuple("fast_dev_run", options.fast_dev_run, 0),
          std::tuple("sanity_val_batches", options.sanity_val_batches, 0)}) {
        if (value < least) {
            throw ConfigError("RT-F10",
                              concat("Fit: ", name, " is ", value, "; expected at least ", least));
        }
    }
    if (!(options.clip_norm >= 0) || !(options.clip_value >= 0) ||
        (options.clip_norm > 0 && options.clip_value > 0)) {
        throw ConfigError("RT-F10",
                          concat("Fit: clip_norm is ", options.clip_norm, " and clip_value ",
                                 options.clip_value, "; set one of the two, to more than 0"));
    }
    check_accumulate(options, facts.accumulate, facts.ranks);
    if (!facts.is_automatic &&
        (facts.accumulate != 1 || options.clip_norm > 0 || options.clip_value > 0)) {
        throw ConfigError("RT-F11", "Fit: accumulate, clip_norm and clip_value are for automatic "
                                    "optimization, but the module sets automatic_optimization = "
                                    "false; remove them, and do it in training_step");
    }
    if (options.last_window == LastWindow::carry &&
        (std::holds_alternative<ShardedOptions>(options.prepare) ||
         adds_by_micro_batches(options))) {
        throw ConfigError("RT-F11", "Fit: LastWindow::carry keeps gradients on their rank between "
                                    "epochs, but a sharded model and ReductionOrder::micro_batches "
                                    "do not; use LastWindow::step or drop");
    }
    if (options.val_every_steps > 0 && !facts.has_validation) {
        throw ConfigError("RT-F13", concat("Fit: val_every_steps is ", options.val_every_steps,
                                           ", but the trainer has no data set \"", options.val,
                                           "\", or the module no validation_step; add both, or "
                                           "remove val_every_steps"));
    }
    for (const auto& [name, limit] : {std::pair("limit_train_batches", options.limit_train_batches),
                                      std::pair("overfit_batches", options.overfit_batches)}) {
        if (facts.batches && limit > *facts.batches) {
            throw ConfigError("RT-F10", concat("Fit: ", name, " is ", limit, ", but an epoch has ",
                                               *facts.batches, " batches; lower it, or remove it"));
        }
    }
}

RTRAIN_DOOR void check_loss(const at::Tensor& loss) {
    if (!loss.defined() || loss.numel() != 1) {
        throw ModelError("RT-F15",
                         concat("training_step returned ",
                                loss.defined() ? concat("a tensor of shape ", loss.sizes())
                                               : std::string("an undefined tensor"),
                                "; return the loss, a tensor of one element, such as a mean over "
                                "the rows of the batch"));
    }
    if (!loss.requires_grad()) {
        throw ModelError("RT-F15", "training_step returned a loss without a gradient; compute it "
                                   "from the module's parameters, without detach(), item() and "
                                   "NoGradGuard");
    }
    if (loss.is_cpu() && std::isnan(number_in(loss))) {
        throw ModelError("RT-F16", "the loss is NaN; look for a division by zero, a logarithm or "
                                   "root of a negative number, or a diverging model: lower the "
                                   "learning rate, set clip_norm, or find the operator with "
                                   "detect_anomaly");
    }
}

} // namespace rtrain::detail
