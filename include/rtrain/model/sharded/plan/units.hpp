// SPDX-License-Identifier: Apache-2.0
/// @file
/// The units of parameters that are gathered together: see ShardedOptions::units.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/model/parameters/buckets.hpp>

#include <torch/nn/module.h>

#include <cstddef>
#include <string>
#include <vector>

namespace rtrain::detail {

struct Unit {
    std::string name;
    std::vector<std::size_t> parameters;
};

/// Each parameter is in one unit: that of the first pattern that matches its name, or the last
/// unit, which has the rest. Without patterns, blocks of containers are units. Throws ConfigError
/// [RT-C42] for a pattern that matches no parameter.
[[nodiscard]] std::vector<Unit> plan_units(const torch::nn::Module& module,
                                           const std::vector<NamedParameter>& parameters,
                                           const std::vector<std::string>& patterns);

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/model/sharded/plan/units_definitions.hpp>
#endif
