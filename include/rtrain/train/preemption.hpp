// SPDX-License-Identifier: Apache-2.0
/// Preemption: a run receives a preemption notice. Its ranks agree on a step, save there and end,
/// so that the next start loses nothing.
///
/// A notice comes from a signal, from the driver or from FailureConfig::preemption_notice, to one
/// rank or to all, at different times. Ranks therefore vote: after a backward pass whose gradients
/// were averaged, at most a few times a second, and in every report. All get the result at the same
/// point, and save before the next batch.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/status/attempt_status.hpp>

namespace rtrain {

/// Returned by `worker.preemption()` if the run is preempted.
struct PreemptionInfo {
    /// Seconds until this run is killed; may be negative.
    double seconds_left = 0;
};

namespace detail {

/// Thrown out of the training function once the state is saved. Not a std::exception, so that the
/// function's own handlers do not catch it.
struct Preempted {};

/// Leaves the training function after its state was saved.
[[noreturn]] inline void leave_function(AttemptStatus& attempt) {
    attempt.leave();
    throw Preempted();
}

/// First in every call of the worker: rethrows a caught exception that ends the attempt.
inline void require_attempt(AttemptStatus& attempt) {
    if (!attempt.is_over()) {
        return;
    }
    if (const auto failure = attempt.failure()) {
        throw_error(*failure);
    }
    leave_function(attempt);
}

} // namespace detail
} // namespace rtrain
