// SPDX-License-Identifier: Apache-2.0
/// @file
/// optimize(): what configure_optimizers() returns, an optimizer and its schedule.
#pragma once

#include <rtrain/model/lr_schedule.hpp>
#include <rtrain/schedule/any.hpp>

#include <torch/optim/optimizer.h>

#include <concepts>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain {

/// When a schedule moves on.
enum class Every : unsigned char {
    step, ///< after each step of its optimizer
    epoch ///< after each epoch
};

/// Options of optimize().
struct OptimizeOptions {
    Every every = Every::step; ///< when the schedule moves on
    /// For PlateauOptions: the metric of reports that is followed. Empty: "val/loss" if there are
    /// rows to validate on, else "loss".
    std::string monitor{};
};

/// An optimizer and its schedule.
template <std::derived_from<torch::optim::Optimizer> O>
struct Optimized {
    O optimizer; ///< not prepared; Fit prepares it
    /// Of each parameter group, or one for all.
    std::variant<std::vector<schedule::Any>, PlateauOptions> schedule{};
    OptimizeOptions options{}; ///< when the schedule moves on
};

/// An optimizer whose rates follow a schedule.
///
/// @code
/// auto configure_optimizers(const rtrain::Plan& plan) {
///     return rtrain::optimize(torch::optim::AdamW(parameters(), 1e-3),
///                             rtrain::schedule::Cosine{.steps = plan.steps()});
/// }
/// @endcode
template <std::derived_from<torch::optim::Optimizer> O, schedule::Schedule S>
[[nodiscard]] Optimized<O> optimize(O optimizer, S schedule, OptimizeOptions options = {}) {
    return {std::move(optimizer), std::vector<schedule::Any>{std::move(schedule)},
            std::move(options)};
}
/// The same with a schedule for each parameter group.
template <std::derived_from<torch::optim::Optimizer> O>
[[nodiscard]] Optimized<O> optimize(O optimizer, std::vector<schedule::Any> schedules,
                                    OptimizeOptions options = {}) {
    return {std::move(optimizer), std::move(schedules), std::move(options)};
}
/// The same with a Plateau, which lowers the rates after a report whose `monitor` has not improved.
template <std::derived_from<torch::optim::Optimizer> O>
[[nodiscard]] Optimized<O> optimize(O optimizer, PlateauOptions plateau,
                                    OptimizeOptions options = {}) {
    return {std::move(optimizer), std::move(plateau), std::move(options)};
}

} // namespace rtrain
