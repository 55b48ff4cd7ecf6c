// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attempt: one call of the training function on this rank, and its outcome.
#pragma once

#include <rtrain/backend/torch_settings.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/os/owner.hpp>
#include <rtrain/process/status/attempt_status.hpp>
#include <rtrain/process/status/rank_status.hpp>
#include <rtrain/run/run.hpp>
#include <rtrain/train/preemption.hpp>
#include <rtrain/train/train_function.hpp>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace rtrain::detail {

struct Attempt {
    Result result;
    bool preempted = false;
    std::exception_ptr refused;               ///< the run could not be opened
    std::optional<TrainingFailedError> error; ///< the failures and their ranks
    std::string began;                        ///< the checkpoint it resumed from; "" for none
    std::string newest;                       ///< the newest checkpoint at its end
    std::int64_t iteration = 0;               ///< reports in `newest`; on rank 0
};

/// Calls the function. Returns false if it left because the run is preempted, even if it caught the
/// exception. Rethrows its exceptions, including a caught one that ends the attempt.
[[nodiscard]] inline bool run_until_preempted(const RunFunction& train_function, Run& run) {
    const RankStatus::In training(run.context().status, Phase::training);
    bool left = false;
    try {
        const KeptSettings kept;
        process::call_in_this_process([&] { train_function(run); });
    } catch (const Preempted&) {
        left = true;
    }
    const AttemptStatus& status = run.context().attempt;
    if (auto failure = status.failure()) {
        failure->message +=
            "; the training function caught this error, but ranks may no longer be at the same "
            "step, so the attempt fails; do not catch errors of collectives and report()";
        throw_error(*failure);
    }
    return !left && !status.was_left();
}

/// Ends the run on this rank after the training function.
inline void end_run(Attempt& attempt, Run& run) {
    const RankStatus::In finishing(run.context().status, Phase::finishing);
    attempt.preempted ? run.leave() : run.close();
    // Read before another rank can continue and change the run's directory.
    const storage::Location& at = run.directory().location();
    attempt.result = Result::from_path(at.path, at.filesystem);
}

/// Resets the notice, and returns the error that ends fit().
[[nodiscard]] inline PreemptionError
acknowledge_preemption(const Attempt& attempt, const RunConfig& run, PreemptionNotice& notice) {
    notice.reset();
    return PreemptionError(concat("the run was preempted and saved ", attempt.newest, " in ",
                                  attempt.result.path.string(), "; ",
                                  run.resume == Resume::never ? "use Trainer::restore() to resume"
                                                              : "run the same command to resume"));
}

[[nodiscard]] inline std::string name_of(const std::optional<Checkpoint>& checkpoint) {
    return checkpoint ? checkpoint->path.filename().string() : "";
}

} // namespace rtrain::detail
