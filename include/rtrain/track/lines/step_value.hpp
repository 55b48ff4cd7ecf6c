// SPDX-License-Identifier: Apache-2.0
/// @file
/// StepValue: an argument of worker.log(), a number or a tensor with one element.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <string_view>
#include <utility>
#include <variant>

namespace rtrain {

class StepValue {
public:
    template <class T>
    requires std::integral<T> || std::floating_point<T> StepValue(T number)
    noexcept // NOLINT(google-explicit-constructor)
        : value_(static_cast<double>(number)) {}
    /// A tensor that is not on the CPU is read later; do not modify it in place.
    StepValue(at::Tensor tensor) : value_(std::move(tensor)) {} // NOLINT(google-explicit-*)

    [[nodiscard]] const double* number() const noexcept { return std::get_if<double>(&value_); }
    [[nodiscard]] const at::Tensor* tensor() const noexcept {
        return std::get_if<at::Tensor>(&value_);
    }

private:
    std::variant<double, at::Tensor> value_;
};

using StepMetric = std::pair<std::string_view, StepValue>;

} // namespace rtrain
