// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door optimizers.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/fit/optimizers.hpp>

#include <c10/core/GradMode.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::detail {

RTRAIN_DOOR void
FitOptimizer::schedule_by(const std::variant<std::vector<schedule::Any>, PlateauOptions>& schedule,
                          OptimizeOptions options) {
    options_ = std::move(options);
    if (const auto* const plateau = std::get_if<PlateauOptions>(&schedule)) {
        plateau_.emplace(get(), *plateau);
        return;
    }
    const auto& schedules = std::get<std::vector<schedule::Any>>(schedule);
    if (schedules.size() == 1) {
        schedule_.emplace(get(), schedules.front());
    } else if (!schedules.empty()) {
        schedule_.emplace(get(), schedules);
    }
}

RTRAIN_DOOR void FitOptimizer::add_schedule_to(State& state, const std::string& suffix) {
    if (schedule_) {
        state.add("schedule" + suffix, *schedule_);
    }
    if (plateau_) {
        state.add("plateau" + suffix, *plateau_);
    }
}

RTRAIN_DOOR void FitOptimizer::step_schedule(Every every) {
    if (schedule_ && options_.every == every) {
        schedule_->step();
    }
}

RTRAIN_DOOR void FitOptimizer::follow(const Config& metrics, const std::string& default_monitor) {
    if (!plateau_) {
        return;
    }
    const std::string& name = options_.monitor.empty() ? default_monitor : options_.monitor;
    const auto* const value = metrics.if_contains(name);
    if (value == nullptr) {
        std::string names;
        for (const auto& item : metrics) {
            names += concat(names.empty() ? "" : ", ", '"', std::string(item.key()), '"');
        }
        throw ConfigError("RT-F12",
                          concat("Plateau follows \"", name, "\", but the report has ", names,
                                 "; log it, or set OptimizeOptions::monitor to one of "
                                 "these"));
    }
    plateau_->step(value->to_number<double>());
}

RTRAIN_DOOR void FitOptimizer::clip_values(double limit) {
    const c10::NoGradGuard no_grad;
    for (auto& group : get().param_groups()) {
        for (at::Tensor& parameter : group.params()) {
            if (at::Tensor& gradient = parameter.mutable_grad(); gradient.defined()) {
                gradient.clamp_(-limit, limit);
            }
        }
    }
}

} // namespace rtrain::detail
