// SPDX-License-Identifier: Apache-2.0
/// @file
/// The types in which a sharded model stores its parameters: see ShardedOptions::parameter_type.
#pragma once

#include <rtrain/model/options/sharded_options.hpp>
#include <rtrain/model/parameters/buckets.hpp>

#include <ATen/core/Tensor.h>

#include <vector>

namespace rtrain::detail {

/// Returns the stored types, by parameter. Parameters of one dimension keep their type: they take
/// little memory, and norm kernels need them in the type of their input, or in float32.
[[nodiscard]] inline std::vector<at::ScalarType>
shard_dtypes(const std::vector<NamedParameter>& parameters, const ShardedOptions& options) {
    std::vector<at::ScalarType> types;
    for (const auto& [name, tensor] : parameters) {
        const bool changes =
            options.parameter_type && tensor.scalar_type() == at::kFloat && tensor.dim() > 1;
        types.push_back(changes ? *options.parameter_type : tensor.scalar_type());
    }
    return types;
}

/// Returns the present types, by parameter.
[[nodiscard]] inline std::vector<at::ScalarType>
types_of(const std::vector<NamedParameter>& parameters) {
    std::vector<at::ScalarType> types;
    for (const auto& [name, tensor] : parameters) {
        types.push_back(tensor.scalar_type());
    }
    return types;
}

} // namespace rtrain::detail
