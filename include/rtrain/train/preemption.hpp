// SPDX-License-Identifier: Apache-2.0
/// @file
/// Preemption: a run is told to make room. Its ranks agree on a step, save there and end, so that
/// the next start loses nothing.
///
/// A notice comes from a signal, from the driver or from FailureConfig::preemption_notice, to one
/// rank or to all, each at another moment. Ranks therefore vote: behind a backward pass whose
/// gradients were averaged, at most a few times a second, and in every report. All learn the
/// outcome at the same place, and save before they take the next batch.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/attempt_status.hpp>

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

/// Leaves the training function, whose state is saved.
[[noreturn]] inline void leave_function() {
    AttemptStatus::current().leave();
    throw Preempted();
}

/// First in every call of the worker: throws again what the training function has caught although
/// it ends the attempt.
inline void require_attempt() {
    const AttemptStatus& attempt = AttemptStatus::current();
    if (!attempt.is_over()) {
        return;
    }
    if (const auto failure = attempt.failure()) {
        throw_error(failure->code(), failure->message());
    }
    leave_function();
}

} // namespace detail
} // namespace rtrain
