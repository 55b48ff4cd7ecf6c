// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door logged.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/fit/logged.hpp>

#include <ATen/Functions.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::detail {

RTRAIN_DOOR double number_in(const at::Tensor& tensor) {
    switch (tensor.scalar_type()) {
    case at::kFloat:
        return static_cast<double>(*tensor.const_data_ptr<float>());
    case at::kDouble:
        return *tensor.const_data_ptr<double>();
    case at::kLong:
        return static_cast<double>(*tensor.const_data_ptr<std::int64_t>());
    default:
        return tensor.item<double>();
    }
}

RTRAIN_DOOR void Logged::add(std::string_view name, const StepValue& value, double rows,
                             const LogOptions& options) {
    auto known = names_.find(name);
    if (known == names_.end()) {
        known = names_.emplace(std::string(name), prefix_ + std::string(name)).first;
    }
    const at::Tensor* const tensor = value.tensor();
    if (tensor != nullptr && (!tensor->defined() || tensor->numel() != 1)) {
        throw ConfigError("RT-F14",
                          concat("step.log(\"", name, "\") was given ",
                                 tensor->defined()
                                     ? concat("a tensor of ", tensor->numel(), " elements")
                                     : std::string("an undefined tensor"),
                                 "; log a number or a tensor of one element, such as a mean"));
    }
    const bool is_read = tensor == nullptr || tensor->is_cpu();
    const double number = tensor == nullptr ? *value.number() : is_read ? number_in(*tensor) : 0;
    if (options.on_step.value_or(prefix_.empty())) {
        if (std::exchange(is_taken_, false)) {
            line_.clear();
        }
        StepMetric metric{known->second, is_read ? StepValue(number) : value};
        const auto same = std::ranges::find(line_, metric.first, &StepMetric::first);
        if (same == line_.end()) {
            line_.push_back(std::move(metric));
        } else {
            *same = std::move(metric);
        }
    }
    if (options.on_epoch && is_read) {
        values_.update(known->second, number, rows, options.reduce);
    } else if (options.on_epoch) {
        constexpr std::size_t most = 256; // each keeps an element of the device's memory
        later_.push_back({&known->second, tensor->variable_data(), rows, options.reduce});
        if (later_.size() == most) {
            (void)values();
        }
    }
}

RTRAIN_DOOR std::span<const StepMetric> Logged::take_line() {
    if (std::exchange(is_taken_, true)) {
        line_.clear();
    }
    return line_;
}

RTRAIN_DOOR metric::GrowingCollection& Logged::values() {
    if (!later_.empty()) {
        std::vector<at::Tensor> tensors;
        for (const Later& value : later_) {
            tensors.push_back(value.tensor.reshape({}).to(at::kDouble));
        }
        const at::Tensor numbers = at::stack(tensors).cpu();
        for (std::size_t i = 0; i < later_.size(); ++i) {
            values_.update(*later_[i].name, numbers.const_data_ptr<double>()[i], later_[i].rows,
                           later_[i].reduce);
        }
        later_.clear();
    }
    return values_;
}

} // namespace rtrain::detail
