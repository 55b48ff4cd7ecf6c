// SPDX-License-Identifier: Apache-2.0
/// @file
/// How torch's own objects are saved and loaded: modules, optimizers, schedulers.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/state/kept_state.hpp>
#include <rtrain/state/optimizer_parts.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim.h>

#include <typeinfo>

namespace rtrain::checkpoint {

/// The part of a module's that its class saves itself; begins as no parameter's name does.
inline constexpr const char* own_state = ".own";

/// Throws CheckpointError [RT-K7] for a module that overrides torch's save() and writes more than
/// parameters and buffers, also for one inside of it.
void require_plain_module(const torch::nn::Module& module);
/// Parameters and buffers by name, and which parameters are frozen.
void save_module(const torch::nn::Module& module, StateWriter& out);
void load_module(torch::nn::Module& module, const StateReader& in);

/// A tensor of the program, and whether it requires a gradient; loaded in place where it fits.
void save_tensor(const at::Tensor& tensor, StateWriter& out);
void load_tensor(at::Tensor& tensor, const StateReader& in);

/// A generator of which each rank's own state is saved as "state".
void load_generator(at::Generator generator, const StateReader& in);

/// Options of every parameter group, and the state of every parameter, as of the class `as`. Throws
/// CheckpointError [RT-K7] for one that is not torch::optim's, [RT-K30] for a parameter in two
/// groups.
void save_optimizer(torch::optim::Optimizer& optimizer, const StateWriter& out,
                    const std::type_info& as);
/// Finds parameters by name where the state has their modules, else by place. Throws
/// CheckpointError [RT-K3] when the saved optimizer is of another class or has other parameters.
void load_optimizer(torch::optim::Optimizer& optimizer, const StateReader& in,
                    const std::type_info& as);
/// The same, as of the optimizer's own class.
inline void save_optimizer(torch::optim::Optimizer& optimizer, const StateWriter& out) {
    save_optimizer(optimizer, out, class_of(optimizer));
}
inline void load_optimizer(torch::optim::Optimizer& optimizer, const StateReader& in) {
    load_optimizer(optimizer, in, class_of(optimizer));
}

/// What is kept for the parameter `whole` becomes what is kept for `part`, its elements `of`.
void cut_optimizer_state(torch::optim::Optimizer& optimizer, const at::Tensor& whole,
                         const at::Tensor& part, const PartOf& of);

/// Throws CheckpointError [RT-K7] unless the scheduler is one of torch::optim's, and not of a class
/// that derives from it.
void require_own_class(const torch::optim::LRScheduler& scheduler);
void require_own_class(const torch::optim::ReduceLROnPlateauScheduler& scheduler);
/// What the scheduler's base class keeps.
void save_scheduler(torch::optim::LRScheduler& scheduler, StateWriter& out);
void load_scheduler(torch::optim::LRScheduler& scheduler, const StateReader& in);
void save_scheduler(torch::optim::ReduceLROnPlateauScheduler& scheduler, StateWriter& out);
void load_scheduler(torch::optim::ReduceLROnPlateauScheduler& scheduler, const StateReader& in);

} // namespace rtrain::checkpoint

#ifndef RTRAIN_COMPILED
#include <rtrain/state/module_state.hpp>
#include <rtrain/state/optimizer_state.hpp>
#include <rtrain/state/scheduler_state.hpp>
#include <rtrain/state/tensor_state.hpp>
#endif
