// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door plan.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/fit/plan.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

namespace rtrain {

RTRAIN_DOOR Plan::Plan(const FitOptions& options, int ranks, std::optional<std::int64_t> batches,
                       std::function<int(int)> accumulate)
    : epochs_(options.fast_dev_run > 0
                  ? 1
                  : options.max_epochs.value_or(
                        options.max_steps > 0 ? std::numeric_limits<int>::max() : 1)),
      ranks_(ranks), batches_(batches), max_steps_(options.max_steps),
      rows_per_step_(options.batch_size * accumulate(0) * ranks), last_window_(options.last_window),
      accumulate_(std::move(accumulate)) {}

RTRAIN_DOOR std::int64_t Plan::batches() const {
    if (!batches_) {
        throw ConfigError("RT-F20",
                          "the number of batches in an epoch is unknown, because the rows "
                          "of the data set are not counted; set FitOptions::max_steps, and "
                          "use it instead");
    }
    return *batches_;
}

RTRAIN_DOOR std::int64_t Plan::steps() const {
    if (max_steps_ > 0 && (!batches_ || epochs_ == std::numeric_limits<int>::max())) {
        return max_steps_;
    }
    std::int64_t steps = 0;
    std::int64_t left = 0;
    for (int epoch = 0; epoch < epochs_; ++epoch) {
        const std::int64_t window = accumulate_(epoch);
        left += batches();
        steps += left / window;
        left %= window;
        steps += last_window_ == LastWindow::step && left > 0 ? 1 : 0;
        left = last_window_ == LastWindow::carry ? left : 0;
    }
    return max_steps_ > 0 ? std::min(steps, max_steps_) : steps;
}

} // namespace rtrain
