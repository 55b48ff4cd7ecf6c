// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plan: the length of a training, for schedules.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/fit/options.hpp>

#include <cstdint>
#include <functional>
#include <optional>

namespace rtrain {

/// The length of a training by Fit; the argument of configure_optimizers().
class Plan {
public:
    /// `batches`: of a rank in an epoch; empty: not known. `accumulate`: by epoch.
    Plan(const FitOptions& options, int ranks, std::optional<std::int64_t> batches,
         std::function<int(int epoch)> accumulate);

    /// The number of optimizer steps. Throws ConfigError [RT-F20] if rows are not counted, unless
    /// max_steps is set.
    [[nodiscard]] std::int64_t steps() const;
    /// FitOptions::max_epochs.
    [[nodiscard]] int epochs() const noexcept { return epochs_; }
    /// The number of batches of a rank in an epoch. Throws ConfigError [RT-F20] if rows are not
    /// counted.
    [[nodiscard]] std::int64_t batches() const;
    /// The number of ranks.
    [[nodiscard]] int ranks() const noexcept { return ranks_; }
    /// The number of rows of all ranks in a step of the first epoch.
    [[nodiscard]] std::int64_t rows_per_step() const noexcept { return rows_per_step_; }
    /// The number of batches of this rank in a step of an epoch.
    [[nodiscard]] int accumulate(int epoch) const { return accumulate_(epoch); }

private:
    int epochs_;
    int ranks_;
    std::optional<std::int64_t> batches_;
    std::int64_t max_steps_;
    std::int64_t rows_per_step_;
    LastWindow last_window_;
    std::function<int(int)> accumulate_;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/fit/plan_definitions.hpp>
#endif
