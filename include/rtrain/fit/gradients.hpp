// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gradients that an unfinished window has left on this rank, in a checkpoint.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/state/state_io.hpp>

#include <torch/nn/module.h>

namespace rtrain::detail {

/// Saves each rank's gradients.
void save_gradients(const torch::nn::Module& module, StateWriter& out);
/// Loads the gradients that this rank has saved; other parameters get none.
void load_gradients(torch::nn::Module& module, const StateReader& in);

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/fit/gradients_definitions.hpp>
#endif
