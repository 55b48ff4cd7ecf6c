// SPDX-License-Identifier: Apache-2.0
/// @file
/// LrSchedule sets an optimizer's learning rates by schedules; Plateau lowers them when a metric
/// stops improving.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/schedule/any.hpp>
#include <rtrain/schedule/chain.hpp>
#include <rtrain/state/state_io.hpp>

#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rtrain {

/// Sets the learning rates of an optimizer, also of a prepared one: each is the group's initial
/// rate times the schedule's multiplier. The constructor sets those of step 0; call step() after
/// every optimizer.step(). In a State, it resumes where it stopped.
///
/// @code
/// namespace s = rtrain::schedule;
/// rtrain::LrSchedule schedule(optimizer, s::Warmup{100}.then(s::Cosine{.steps = steps - 100}));
/// @endcode
///
/// The optimizer must live as long. Throws ConfigError [RT-C80, RT-C81] for bad values and steps,
/// [RT-C83] if a schedule sets the momentum of an optimizer that has none, [RT-C84] if a multiplier
/// is negative or not finite.
class LrSchedule final : public torch::optim::LRScheduler {
public:
    /// Uses one schedule for all parameter groups.
    LrSchedule(torch::optim::Optimizer& optimizer, const schedule::Any& schedule);
    /// Uses a schedule for each parameter group. Also throws ConfigError [RT-C82] if their numbers
    /// differ.
    LrSchedule(torch::optim::Optimizer& optimizer, std::vector<schedule::Any> schedules);
    /// Uses a schedule for each parameter group, in order.
    template <schedule::Schedule First, schedule::Schedule Second, schedule::Schedule... More>
    LrSchedule(torch::optim::Optimizer& optimizer, const First& first, const Second& second,
               const More&... more)
        : LrSchedule(optimizer, std::vector<schedule::Any>{first, second, more...}) {}

    /// Returns the current learning rate of each parameter group.
    [[nodiscard]] std::vector<double> get_last_lr() const;

    /// Saves the step and the initial rates. A checkpoint's initial rates replace the program's, as
    /// do the optimizer's options.
    void save(StateWriter& out) const;
    void load(const StateReader& in); ///< loads what save() has saved

private:
    std::vector<double> get_lrs() override;
    void set_momenta(std::size_t group, std::int64_t step);

    torch::optim::Optimizer* optimizer_;
    std::vector<schedule::Any> schedules_;
    std::vector<double> initial_lrs_;
    std::vector<double> initial_momenta_; ///< 0 where the optimizer has none
};

/// Options of Plateau, with the names and defaults of torch's ReduceLROnPlateau.
struct PlateauOptions {
    /// The class of libtorch, which has the enumerations.
    using Torchs = torch::optim::ReduceLROnPlateauScheduler;

    Torchs::SchedulerMode mode = Torchs::min; ///< whether smaller or larger is better
    double factor = 0.1;     ///< new rate divided by the old one; at least 0, below 1
    int patience = 10;       ///< steps without improvement that are tolerated, at least 0
    double threshold = 1e-4; ///< least improvement that counts, at least 0
    Torchs::ThresholdMode threshold_mode =
        Torchs::rel;              ///< whether it is relative to the best value
    int cooldown = 0;             ///< steps after a reduction that do not count, at least 0
    std::vector<double> min_lr{}; ///< lowest rates: one for all groups, or one for each
    double eps = 1e-8;            ///< least change of a rate, at least 0
};

/// torch's ReduceLROnPlateau, also for prepared optimizers. In a State, it resumes.
///
/// @code
/// rtrain::Plateau plateau(optimizer, {.factor = 0.5, .patience = 3});
/// plateau.step(worker.all_reduce(sum_of_losses) / worker.all_reduce(rows));
/// worker.report({{"epoch", epoch}}, state); // after step(), which it saves
/// @endcode
///
/// The optimizer must live as long. Throws ConfigError [RT-C80] for bad options, [RT-C82] if
/// min_lr has a wrong number of rates.
class Plateau final : public torch::optim::ReduceLROnPlateauScheduler {
public:
    /// Takes the current rates as the ones to reduce.
    explicit Plateau(torch::optim::Optimizer& optimizer, const PlateauOptions& options = {});

    /// Takes the metric, which must be the same on all ranks: for example from
    /// worker.all_reduce(). NaN is not an improvement.
    void step(double metric);
    /// Returns the current learning rate of each parameter group.
    [[nodiscard]] std::vector<double> get_last_lr() const;

    /// Saves the best value and the counters.
    void save(StateWriter& out) const;
    void load(const StateReader& in); ///< loads what save() has saved

private:
    torch::optim::Optimizer* optimizer_;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/model/lr_schedule_definitions.hpp>
#endif
