// SPDX-License-Identifier: Apache-2.0
/// @file
/// How ranks agree that the run makes room: see train/preemption.hpp.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/process/preemption_notice.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rtrain::detail {

/// Behind a backward pass of all ranks: now and then asks whether any was told to make room.
/// *Collective.*
inline void vote_on_preemption(HookRanks& backend) {
    PreemptionNotice& notice = PreemptionNotice::current();
    if (!notice.is_listened_to() || notice.agreed() || !notice.votes().is_due()) {
        return;
    }
    at::Tensor vote = at::empty({2}, at::kLong);
    auto* const values = vote.mutable_data_ptr<std::int64_t>();
    values[0] = notice.given() ? 1 : 0;
    values[1] = notice.votes().step_us();
    backend.all_reduce(vote, ReduceOp::max);
    notice.votes().schedule(values[1]);
    if (values[0] != 0) {
        const auto* const loop = data::Loops::current().only();
        notice.agree(loop != nullptr ? loop->position.get() : nullptr);
    }
}

} // namespace rtrain::detail
