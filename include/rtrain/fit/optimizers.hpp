// SPDX-License-Identifier: Apache-2.0
/// @file
/// The prepared optimizers of Fit without their types, each with its schedule.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/fit/optimize.hpp>
#include <rtrain/model/amp/grad_scaler.hpp>
#include <rtrain/model/lr_schedule.hpp>
#include <rtrain/state/state.hpp>

#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::detail {

/// A prepared optimizer and its schedule.
class FitOptimizer {
public:
    FitOptimizer() = default;
    FitOptimizer(const FitOptimizer&) = delete;
    FitOptimizer& operator=(const FitOptimizer&) = delete;
    virtual ~FitOptimizer() = default;

    [[nodiscard]] virtual torch::optim::Optimizer& get() = 0;
    virtual void zero_grad() = 0;
    virtual void unscale(GradScaler& scaler) = 0;
    virtual void step(GradScaler& scaler) = 0;
    /// Adds it and its schedule to a state; `suffix` distinguishes several.
    virtual void add_to(State& state, const std::string& suffix) = 0;

    /// Ends a step or an epoch of the schedule.
    void step_schedule(Every every);
    /// Shows a Plateau the metrics of a report. Throws ConfigError [RT-F12] if its metric is not
    /// among them.
    void follow(const Config& metrics, const std::string& default_monitor);
    /// Limits each element of the gradients.
    void clip_values(double limit);

protected:
    /// Call after the optimizer is in its place. Throws ConfigError [RT-C80 to RT-C84].
    void schedule_by(const std::variant<std::vector<schedule::Any>, PlateauOptions>& schedule,
                     OptimizeOptions options);
    void add_schedule_to(State& state, const std::string& suffix);

private:
    OptimizeOptions options_;
    std::optional<LrSchedule> schedule_;
    std::optional<Plateau> plateau_;
};

template <class Prepared>
class FitOptimizerOf final : public FitOptimizer {
public:
    template <class Worker, class O>
    FitOptimizerOf(Worker& worker, Optimized<O> given)
        : optimizer_(worker.prepare(std::move(given.optimizer))) {
        schedule_by(given.schedule, std::move(given.options));
    }
    [[nodiscard]] torch::optim::Optimizer& get() override { return optimizer_; }
    void zero_grad() override { optimizer_.zero_grad(); }
    void unscale(GradScaler& scaler) override { scaler.unscale_(optimizer_); }
    void step(GradScaler& scaler) override { scaler.step(optimizer_); }
    void add_to(State& state, const std::string& suffix) override {
        state.add("optimizer" + suffix, optimizer_);
        add_schedule_to(state, suffix);
    }

private:
    Prepared optimizer_;
};

using FitOptimizers = std::vector<std::unique_ptr<FitOptimizer>>;

template <class T>
inline constexpr bool is_optimized = false;
template <class O>
inline constexpr bool is_optimized<Optimized<O>> = true;

/// Prepares what configure_optimizers() returned: an optimizer, one with a schedule, or a tuple.
template <class Worker, class Given>
void prepare_optimizers(Worker& worker, Given given, FitOptimizers& to) {
    if constexpr (std::derived_from<Given, torch::optim::Optimizer>) {
        prepare_optimizers(worker, Optimized<Given>{std::move(given)}, to);
    } else if constexpr (is_optimized<Given>) {
        using Prepared = decltype(worker.prepare(std::move(given.optimizer)));
        to.push_back(std::make_unique<FitOptimizerOf<Prepared>>(worker, std::move(given)));
    } else {
        std::apply([&](auto&... each) { (prepare_optimizers(worker, std::move(each), to), ...); },
                   given);
    }
}

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/fit/optimizers_definitions.hpp>
#endif
