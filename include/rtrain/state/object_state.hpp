// SPDX-License-Identifier: Apache-2.0
/// @file
/// How torch's own objects are saved and loaded: modules, optimizers, schedulers.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/state/optimizer_parts.hpp>
#include <rtrain/state/state_io.hpp>

#include <torch/nn/module.h>
#include <torch/optim.h>

namespace rtrain::checkpoint {

/// Parameters and buffers by name.
void save_module(const torch::nn::Module& module, StateWriter& out);
void load_module(torch::nn::Module& module, const StateReader& in);

/// Options of every parameter group, and the state of every parameter by its place. Throws
/// CheckpointError [RT-K7] for an optimizer that is none of torch::optim's.
void save_optimizer(torch::optim::Optimizer& optimizer, const StateWriter& out);
/// Throws CheckpointError [RT-K3] when the saved optimizer is of another class or has other groups.
void load_optimizer(torch::optim::Optimizer& optimizer, const StateReader& in);

/// What is kept for the parameter `whole` becomes what is kept for `part`, its elements `of`.
void cut_optimizer_state(torch::optim::Optimizer& optimizer, const at::Tensor& whole,
                         const at::Tensor& part, const PartOf& of);

void save_scheduler(torch::optim::LRScheduler& scheduler, StateWriter& out);
void load_scheduler(torch::optim::LRScheduler& scheduler, const StateReader& in);
void save_scheduler(torch::optim::ReduceLROnPlateauScheduler& scheduler, StateWriter& out);
void load_scheduler(torch::optim::ReduceLROnPlateauScheduler& scheduler, const StateReader& in);

} // namespace rtrain::checkpoint

#ifndef RTRAIN_COMPILED
#include <rtrain/state/module_state.hpp>
#include <rtrain/state/optimizer_state.hpp>
#include <rtrain/state/scheduler_state.hpp>
#endif
