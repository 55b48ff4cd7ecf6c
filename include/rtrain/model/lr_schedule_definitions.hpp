// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door lr_schedule.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/lr_schedule.hpp>
#include <rtrain/state/save_as.hpp>

#include <boost/json/array.hpp>
#include <boost/json/value_from.hpp>
#include <torch/optim.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace rtrain {

namespace detail {

template <class Options>
bool visit_beta(torch::optim::OptimizerOptions& options, const auto& visit) {
    auto* const adam = dynamic_cast<Options*>(&options);
    if (adam != nullptr) {
        auto betas = adam->betas();
        visit(std::get<0>(betas));
        adam->betas(betas);
    }
    return adam != nullptr;
}
template <class Options>
bool visit_option(torch::optim::OptimizerOptions& options, const auto& visit) {
    auto* const found = dynamic_cast<Options*>(&options);
    if (found != nullptr) {
        visit(found->momentum());
    }
    return found != nullptr;
}

/// Calls `visit` with the momentum, or the first beta, of a group's options. Returns false if they
/// have neither.
template <class Visit>
bool visit_momentum(torch::optim::OptimizerOptions& options, const Visit& visit) {
    return visit_option<torch::optim::SGDOptions>(options, visit) ||
           visit_option<torch::optim::RMSpropOptions>(options, visit) ||
           visit_beta<torch::optim::AdamOptions>(options, visit) ||
           visit_beta<torch::optim::AdamWOptions>(options, visit);
}

[[nodiscard]] inline std::vector<double> learning_rates(torch::optim::Optimizer& optimizer) {
    std::vector<double> rates;
    for (const auto& group : optimizer.param_groups()) {
        rates.push_back(group.options().get_lr());
    }
    return rates;
}

/// Throws ConfigError [RT-C82] if an optimizer has a different number of parameter groups.
inline void require_groups(const torch::optim::Optimizer& optimizer, std::size_t given,
                           const char* what) {
    if (optimizer.param_groups().size() != given) {
        throw ConfigError("RT-C82",
                          concat(what, " has ", given, " for ", optimizer.param_groups().size(),
                                 " parameter groups of the optimizer; give one for all, "
                                 "or one for each; add groups before"));
    }
}

/// Throws CheckpointError [RT-K3] if there are not `count` numbers.
[[nodiscard]] inline std::vector<double> numbers_from(const boost::json::value& value,
                                                      std::size_t count) {
    std::vector<double> numbers;
    for (const auto& item : value.as_array()) {
        numbers.push_back(item.to_number<double>());
    }
    if (numbers.size() != count) {
        throw CheckpointError("RT-K3", concat("the checkpoint has a schedule for ", numbers.size(),
                                              " parameter groups, but the program's has ", count));
    }
    return numbers;
}

/// Returns the options if they are valid. Throws ConfigError [RT-C80].
[[nodiscard]] inline const PlateauOptions& checked(const PlateauOptions& options) {
    const auto require = [](const char* field, double value, double least, double most) {
        if (!(value >= least && value <= most)) {
            throw ConfigError("RT-C80", concat("Plateau: ", field, " is ", value,
                                               "; it must be between ", least, " and ", most));
        }
    };
    constexpr double largest = std::numeric_limits<float>::max();
    require("factor", options.factor, 0, std::nextafter(1.0F, 0.0F)); // torch's is a float below 1
    require("patience", options.patience, 0, largest);
    require("threshold", options.threshold, 0, largest);
    require("cooldown", options.cooldown, 0, largest);
    require("eps", options.eps, 0, largest);
    for (const double rate : options.min_lr) {
        require("min_lr", rate, 0, largest);
    }
    return options;
}
[[nodiscard]] inline std::vector<float> lowest_rates(const torch::optim::Optimizer& optimizer,
                                                     const PlateauOptions& options) {
    std::vector<float> rates(options.min_lr.begin(), options.min_lr.end());
    if (rates.size() <= 1) {
        rates.resize(optimizer.param_groups().size(), rates.empty() ? 0 : rates[0]);
    }
    require_groups(optimizer, rates.size(), "PlateauOptions::min_lr");
    return rates;
}

} // namespace detail

RTRAIN_DOOR LrSchedule::LrSchedule(torch::optim::Optimizer& optimizer,
                                   const schedule::Any& schedule)
    : LrSchedule(optimizer, std::vector<schedule::Any>(optimizer.param_groups().size(), schedule)) {
}

RTRAIN_DOOR LrSchedule::LrSchedule(torch::optim::Optimizer& optimizer,
                                   std::vector<schedule::Any> schedules)
    : LRScheduler(optimizer), optimizer_(&optimizer), schedules_(std::move(schedules)),
      initial_lrs_(detail::learning_rates(optimizer)) {
    detail::require_groups(optimizer, schedules_.size(), "LrSchedule");
    for (std::size_t group = 0; group < schedules_.size(); ++group) {
        double initial = 0;
        const bool has_momentum =
            detail::visit_momentum(optimizer.param_groups()[group].options(),
                                   [&](const double& momentum) { initial = momentum; });
        if (!has_momentum && schedules_[group].sets_momentum()) {
            throw ConfigError("RT-C83",
                              detail::concat("the schedule of parameter group ", group,
                                             " sets the momentum, but the optimizer has none; use "
                                             "SGD, RMSprop, Adam or AdamW, or set cycle_momentum = "
                                             "false"));
        }
        initial_momenta_.push_back(initial);
    }
    --step_count_; // the next one is 0
    step();
}

RTRAIN_DOOR std::vector<double> LrSchedule::get_last_lr() const {
    return detail::learning_rates(*optimizer_);
}

RTRAIN_DOOR std::vector<double> LrSchedule::get_lrs() {
    detail::require_groups(*optimizer_, schedules_.size(), "LrSchedule");
    const std::int64_t step = std::int64_t{step_count_ + 1U};
    std::vector<double> rates;
    for (std::size_t group = 0; group < schedules_.size(); ++group) {
        const double multiplier = schedules_[group](step);
        if (!(multiplier >= 0 && std::isfinite(multiplier * initial_lrs_[group]))) {
            throw ConfigError("RT-C84",
                              detail::concat("the schedule of parameter group ", group,
                                             " returned ", multiplier, " at step ", step,
                                             "; a multiplier must be finite and at least 0"));
        }
        rates.push_back(multiplier * initial_lrs_[group]);
    }
    for (std::size_t group = 0; group < schedules_.size(); ++group) {
        set_momenta(group, step);
    }
    return rates;
}

RTRAIN_DOOR void LrSchedule::set_momenta(std::size_t group, std::int64_t step) {
    if (schedules_[group].sets_momentum()) {
        const double momentum = schedules_[group].momentum(step).value_or(initial_momenta_[group]);
        detail::visit_momentum(optimizer_->param_groups()[group].options(),
                               [&](double& option) { option = momentum; });
    }
}

RTRAIN_DOOR void LrSchedule::save(StateWriter& out) const {
    checkpoint::save_as<torch::optim::LRScheduler>(*this, out);
    out.value("initial_lrs", boost::json::value_from(initial_lrs_));
    out.value("initial_momenta", boost::json::value_from(initial_momenta_));
}
RTRAIN_DOOR void LrSchedule::load(const StateReader& in) {
    auto rates = detail::numbers_from(in.value("initial_lrs"), schedules_.size());
    initial_momenta_ = detail::numbers_from(in.value("initial_momenta"), schedules_.size());
    initial_lrs_ = std::move(rates);
    checkpoint::load_as<torch::optim::LRScheduler>(*this, in);
}

RTRAIN_DOOR Plateau::Plateau(torch::optim::Optimizer& prepared, const PlateauOptions& options)
    : ReduceLROnPlateauScheduler(prepared, detail::checked(options).mode,
                                 static_cast<float>(options.factor), options.patience,
                                 options.threshold, options.threshold_mode, options.cooldown,
                                 detail::lowest_rates(prepared, options), options.eps),
      optimizer_(&prepared) {}

RTRAIN_DOOR void Plateau::step(double metric) {
    ReduceLROnPlateauScheduler::step(static_cast<float>(metric));
}
RTRAIN_DOOR std::vector<double> Plateau::get_last_lr() const {
    return detail::learning_rates(*optimizer_);
}
RTRAIN_DOOR void Plateau::save(StateWriter& out) const {
    checkpoint::save_as<ReduceLROnPlateauScheduler>(*this, out);
}
RTRAIN_DOOR void Plateau::load(const StateReader& in) {
    checkpoint::load_as<ReduceLROnPlateauScheduler>(*this, in);
}

} // namespace rtrain
