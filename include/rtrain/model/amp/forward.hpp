// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs a model's forward, under autocast where its options say so.
#pragma once

#include <rtrain/data/batch/each_tensor.hpp>
#include <rtrain/model/amp/autocast.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <optional>
#include <type_traits>

namespace rtrain::detail {

/// Converts 16-bit tensors in a model's result to float32: losses are then computed in float32.
template <class T>
void to_float32(T& value) {
    each_tensor(value, [](auto& tensor) {
        if constexpr (!std::is_const_v<std::remove_reference_t<decltype(tensor)>>) {
            if (tensor.defined() && at::isReducedFloatingType(tensor.scalar_type())) {
                tensor = tensor.to(at::kFloat);
            }
        }
    });
}

/// Runs the module's forward, under autocast when `type` is given. Results returned by reference
/// stay as they are.
template <class Forward>
decltype(auto) run_forward(const std::optional<at::ScalarType>& type,
                           const torch::nn::Module& module, Forward&& forward) {
    std::optional<Autocast> autocast;
    if (type) {
        autocast.emplace(*type, module.parameters().front().device().type());
    }
    if constexpr (std::is_object_v<std::invoke_result_t<Forward>>) {
        auto output = forward();
        if (type) {
            to_float32(output);
        }
        return output;
    } else {
        return forward();
    }
}

} // namespace rtrain::detail
