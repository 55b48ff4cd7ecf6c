// SPDX-License-Identifier: Apache-2.0
/// @file
/// Preemption: a run is told to make room. Its ranks agree on a step, save there and end, so that
/// the next start loses nothing.
///
/// A notice comes from a signal, from the driver or from FailureConfig::preemption_notice, to one
/// rank or to all, each at another moment. Ranks therefore vote: behind a backward pass whose
/// gradients were averaged, at most a few times a second, and in every report. All learn the
/// outcome at the same place, and save before they take the next batch.
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/error.hpp>
#include <rtrain/preemption_notice.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rtrain {

/// What `worker.preemption()` returns when the run is to make room.
struct PreemptionInfo {
    /// Time until this run is ended by force, in seconds; may be below 0.
    double seconds_left = 0;
};

/// What a program exits with when its run was preempted (EX_TEMPFAIL of sysexits.h): start it
/// again.
inline constexpr int preempted_exit_code = 75;

namespace detail {

/// Thrown out of the training function when the state is saved. No std::exception, because the
/// function's own handlers have nothing to do with it.
struct Preempted {};

/// Behind a backward pass of all ranks: now and then asks whether any was told to make room.
/// *Collective.*
template <Backend B>
void vote_on_preemption(B& backend) {
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

} // namespace detail
} // namespace rtrain
