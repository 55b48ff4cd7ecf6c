// SPDX-License-Identifier: Apache-2.0
/// @file
/// Saving and loading torch's learning-rate schedulers. The learning rates themselves are the
/// optimizer's.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/state/state_io.hpp>

#include <torch/optim.h>

namespace rtrain::checkpoint {

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
#include <rtrain/state/scheduler_state_definitions.hpp>
#endif
