// SPDX-License-Identifier: Apache-2.0
/// @file
/// Saving and loading tensors and random number generators of a program.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace rtrain::checkpoint {

/// Saves a tensor of the program and whether it requires a gradient; loaded in place if it fits.
void save_tensor(const at::Tensor& tensor, StateWriter& out);
void load_tensor(at::Tensor& tensor, const StateReader& in);

/// Loads a generator, of which each rank's own state is saved as "state".
void load_generator(at::Generator generator, const StateReader& in);

} // namespace rtrain::checkpoint

#ifndef RTRAIN_COMPILED
#include <rtrain/state/tensor_state_definitions.hpp>
#endif
