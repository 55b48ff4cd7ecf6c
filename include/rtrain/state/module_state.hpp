// SPDX-License-Identifier: Apache-2.0
/// @file
/// Saving and loading modules: parameters and buffers by name, and which parameters train.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/state/state_io.hpp>

#include <torch/nn/module.h>

namespace rtrain::checkpoint {

/// Name of the part that a module's class saves itself; no parameter name begins like this.
inline constexpr const char* own_state = ".own";

/// Throws CheckpointError [RT-K7] if a module, or one inside it, overrides torch's save() and
/// writes more than parameters and buffers.
void require_plain_module(const torch::nn::Module& module);
/// Saves parameters and buffers by name, and which parameters are frozen.
void save_module(const torch::nn::Module& module, StateWriter& out);
void load_module(torch::nn::Module& module, const StateReader& in);

} // namespace rtrain::checkpoint

#ifndef RTRAIN_COMPILED
#include <rtrain/state/module_state_definitions.hpp>
#endif
