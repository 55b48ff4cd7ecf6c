// SPDX-License-Identifier: Apache-2.0
/// @file
/// In which type a sharded model keeps each of its parameters: see ShardedOptions::parameter_type.
#pragma once

#include <rtrain/model/buckets.hpp>
#include <rtrain/model/sharded_options.hpp>

#include <ATen/core/Tensor.h>

#include <vector>

namespace rtrain::detail {

/// By parameter. Those of one dimension stay as they are: they take little memory, and kernels of
/// norms want them in the type of what is normalised, or in float32.
[[nodiscard]] inline std::vector<at::ScalarType>
kept_types(const std::vector<NamedParameter>& parameters, const ShardedOptions& options) {
    std::vector<at::ScalarType> types;
    for (const auto& [name, tensor] : parameters) {
        const bool changes =
            options.parameter_type && tensor.scalar_type() == at::kFloat && tensor.dim() > 1;
        types.push_back(changes ? *options.parameter_type : tensor.scalar_type());
    }
    return types;
}

/// By parameter: as they are.
[[nodiscard]] inline std::vector<at::ScalarType>
types_of(const std::vector<NamedParameter>& parameters) {
    std::vector<at::ScalarType> types;
    for (const auto& [name, tensor] : parameters) {
        types.push_back(tensor.scalar_type());
    }
    return types;
}

} // namespace rtrain::detail
