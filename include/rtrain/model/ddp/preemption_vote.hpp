// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks' vote on preemption of the run (train/preemption.hpp), and on its time limit.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/preemption/preemption_notice.hpp>
#include <rtrain/process/preemption/time_limit.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rtrain::detail {

/// After a backward pass of all ranks: now and then votes on whether any rank got a preemption
/// notice, and whether the time is up. *Collective.*
inline void vote_on_preemption(HookRanks& backend) {
    PreemptionNotice& notice = ProcessContext::current().notice;
    if (!notice.is_listened_to() || notice.agreed() || !notice.votes().tick()) {
        return;
    }
    TimeLimit& time = ProcessContext::current().time_limit;
    at::Tensor vote = at::empty({3}, at::kLong);
    auto* const values = vote.mutable_data_ptr<std::int64_t>();
    values[0] = notice.given() ? 1 : 0;
    values[1] = notice.votes().step_us();
    values[2] = time.is_over() ? 1 : 0;
    backend.all_reduce(vote, ReduceOp::max);
    notice.votes().schedule(values[1]);
    const auto* const loop = data::LoopStack::current().only();
    const auto* const pass = loop != nullptr ? loop->position.get() : nullptr;
    if (values[0] != 0) {
        notice.agree(pass);
    }
    if (values[2] != 0) {
        time.agree(pass);
    }
}

} // namespace rtrain::detail
