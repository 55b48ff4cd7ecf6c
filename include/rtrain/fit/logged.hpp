// SPDX-License-Identifier: Apache-2.0
/// @file
/// The values that step.log() was given, until a report combines them.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/growing_collection.hpp>
#include <rtrain/track/lines/step_value.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain {

/// Options of Step::log().
struct LogOptions {
    /// Writes the value to steps.jsonl and trackers, as worker.log() does. Unset: in training.
    std::optional<bool> on_step{};
    bool on_epoch = true; ///< combines values over rows and ranks for the next report
    metric::Reduction reduce = metric::Reduction::mean; ///< means are weighted by rows
};

namespace detail {

/// Values by name. Reads tensors in CPU memory immediately, and others together later, so that no
/// operator is added to a step.
class Logged {
public:
    /// `prefix`: of the names in reports, such as "val/".
    explicit Logged(std::string prefix) : prefix_(std::move(prefix)) {}

    /// `rows`: of the batch. Throws ConfigError [RT-F14] for a tensor of several elements.
    void add(std::string_view name, const StepValue& value, double rows, const LogOptions& options);

    /// The on_step values since the last take_line(); the last one of each name.
    [[nodiscard]] std::span<const StepMetric> take_line();

    /// The on_epoch values, all read.
    [[nodiscard]] metric::GrowingCollection& values();

private:
    struct Later {
        const std::string* name;
        at::Tensor tensor;
        double rows;
        metric::Reduction reduce;
    };

    std::string prefix_;
    std::map<std::string, std::string, std::less<>> names_; ///< with the prefix
    std::vector<StepMetric> line_;
    bool is_taken_ = false; ///< line_ was taken
    std::vector<Later> later_;
    metric::GrowingCollection values_;
};

/// The number in a defined tensor of one element in CPU memory, read without an operator.
[[nodiscard]] double number_in(const at::Tensor& tensor);

} // namespace detail
} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/fit/logged_definitions.hpp>
#endif
