// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's forward, under autocast where its options say so, and the tensors in what it returns.
#pragma once

#include <rtrain/model/autocast.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain::detail {

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_tuple = false;
template <class... Parts>
inline constexpr bool is_tuple<std::tuple<Parts...>> = true;

/// What a model returned, with 16-bit tensors, also in vectors and tuples, in float32: losses are
/// then computed in float32. Anything else as it is.
template <class T>
[[nodiscard]] T in_float32(T value) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
        return value.defined() && at::isReducedFloatingType(value.scalar_type())
                   ? value.to(at::kFloat)
                   : value;
    } else if constexpr (is_vector<T>) {
        for (auto&& part : value) {
            part = in_float32(std::move(part));
        }
        return value;
    } else if constexpr (is_tuple<T>) {
        return std::apply([](auto&... parts) { return T(in_float32(std::move(parts))...); }, value);
    } else {
        return value;
    }
}

/// Visits what in_float32() converts.
template <class T, class Visit>
void each_tensor_of(const T& value, const Visit& visit) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
        visit(value);
    } else if constexpr (is_vector<T>) {
        for (const auto& part : value) {
            each_tensor_of(part, visit);
        }
    } else if constexpr (is_tuple<T>) {
        std::apply([&](const auto&... parts) { (each_tensor_of(parts, visit), ...); }, value);
    }
}

/// Runs the module's forward, under autocast when `type` is given.
template <class Forward>
decltype(auto) run_forward(const std::optional<at::ScalarType>& type,
                           const torch::nn::Module& module, Forward&& forward) {
    if constexpr (std::is_object_v<std::invoke_result_t<Forward>>) {
        if (type) {
            const Autocast autocast(*type, module.parameters().front().device().type());
            return in_float32(forward());
        }
    }
    return forward();
}

} // namespace rtrain::detail
