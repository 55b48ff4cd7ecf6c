// SPDX-License-Identifier: Apache-2.0
/// @file
/// Saving and loading torch's own objects: modules, optimizers, schedulers.
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

/// Name of the part that a module's class saves itself; no parameter name begins like this.
inline constexpr const char* own_state = ".own";

/// Throws CheckpointError [RT-K7] if a module, or one inside it, overrides torch's save() and
/// writes more than parameters and buffers.
void require_plain_module(const torch::nn::Module& module);
/// Saves parameters and buffers by name, and which parameters are frozen.
void save_module(const torch::nn::Module& module, StateWriter& out);
void load_module(torch::nn::Module& module, const StateReader& in);

/// Saves a tensor of the program and whether it requires a gradient; loaded in place if it fits.
void save_tensor(const at::Tensor& tensor, StateWriter& out);
void load_tensor(at::Tensor& tensor, const StateReader& in);

/// Loads a generator, of which each rank's own state is saved as "state".
void load_generator(at::Generator generator, const StateReader& in);

/// Saves the options of every parameter group and the state of every parameter, as for the class
/// `as`. Throws CheckpointError [RT-K7] if the class is not in torch::optim, [RT-K30] for a
/// parameter in two groups.
void save_optimizer(torch::optim::Optimizer& optimizer, const StateWriter& out,
                    const std::type_info& as);
/// Finds parameters by name if the state has their modules, else by position. Throws
/// CheckpointError [RT-K3] if the saved optimizer has a different class or different parameters.
void load_optimizer(torch::optim::Optimizer& optimizer, const StateReader& in,
                    const std::type_info& as);
/// Saves the optimizer as its own class.
inline void save_optimizer(torch::optim::Optimizer& optimizer, const StateWriter& out) {
    save_optimizer(optimizer, out, class_of(optimizer));
}
inline void load_optimizer(torch::optim::Optimizer& optimizer, const StateReader& in) {
    load_optimizer(optimizer, in, class_of(optimizer));
}

/// Replaces the state kept for the parameter `whole` by that of `part`, its elements `of`.
void cut_optimizer_state(torch::optim::Optimizer& optimizer, const at::Tensor& whole,
                         const at::Tensor& part, const PartOf& of);

/// Throws CheckpointError [RT-K7] unless the scheduler's class is in torch::optim itself, not
/// derived from one that is.
void require_own_class(const torch::optim::LRScheduler& scheduler);
void require_own_class(const torch::optim::ReduceLROnPlateauScheduler& scheduler);
/// Saves the fields of the scheduler's base class.
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
