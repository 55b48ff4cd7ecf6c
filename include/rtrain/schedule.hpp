// SPDX-License-Identifier: Apache-2.0
/// @file
/// Learning-rate schedules with the values of torch.optim.lr_scheduler, and LrSchedule and Plateau,
/// which apply them to an optimizer. Guide: docs/schedules.md
///
/// @code
/// namespace s = rtrain::schedule;
/// auto optimizer = worker.prepare(torch::optim::AdamW(model->parameters(), 1e-3));
/// rtrain::LrSchedule schedule(optimizer, s::Warmup{100}.then(s::Cosine{.steps = steps - 100}));
/// auto state = rtrain::State{}.add("optimizer", optimizer).add("schedule", schedule);
/// optimizer.step();
/// schedule.step();
/// @endcode
#pragma once

#include <rtrain/base/compiled_for.hpp>
#include <rtrain/model/lr_schedule.hpp>
#include <rtrain/schedule/any.hpp>
#include <rtrain/schedule/chain.hpp>
#include <rtrain/schedule/cosine.hpp>
#include <rtrain/schedule/cycle.hpp>
#include <rtrain/schedule/decay.hpp>
