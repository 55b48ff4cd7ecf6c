// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attempt: one call of the training function on this rank, and what has come of it.
#pragma once

#include <rtrain/backend/torch_settings.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/process/attempt_status.hpp>
#include <rtrain/process/owner.hpp>
#include <rtrain/process/preemption_notice.hpp>
#include <rtrain/process/rank_status.hpp>
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
    std::exception_ptr refused;               ///< the run could not be taken up
    std::optional<TrainingFailedError> error; ///< what has failed on which ranks
    std::string began;                        ///< the checkpoint it went on from; "" for none
    std::string newest;                       ///< the newest at its end
    std::int64_t iteration = 0;               ///< reports that it holds; on rank 0
};

/// Calls the function. False when it was left because the run is to make room, whatever it caught.
/// Throws what it throws, and what it has caught although it ends the attempt.
[[nodiscard]] inline bool returns(const RunFunction& train_function, Run& run) {
    const RankStatus::In training(Phase::training);
    bool left = false;
    try {
        const KeptSettings kept;
        process::call_in_this_process([&] { train_function(run); });
    } catch (const Preempted&) {
        left = true;
    }
    const AttemptStatus& status = AttemptStatus::current();
    if (const auto failure = status.failure()) {
        throw_error(failure->code(),
                    failure->message() +
                        "; the training function caught this error, but ranks may no longer be at "
                        "the same step, so the attempt fails: let errors of communication and of "
                        "report() through");
    }
    return !left && !status.was_left();
}

/// What follows the training function on this rank.
inline void end_run(Attempt& attempt, Run& run) {
    const RankStatus::In finishing(Phase::finishing);
    attempt.preempted ? run.leave() : run.close();
    // Read before any rank may go on and change the run's directory.
    const storage::Location& at = run.directory().location();
    attempt.result = Result::from_path(at.path, at.filesystem);
}

[[nodiscard]] inline PreemptionError has_made_room(const Attempt& attempt, const RunConfig& run) {
    PreemptionNotice::current().reset();
    return PreemptionError(concat("the run was told to make room and has saved ", attempt.newest,
                                  " in ", attempt.result.path.string(), "; ",
                                  run.resume == Resume::never
                                      ? "to go on, use Trainer::restore()"
                                      : "start the same command again to go on"));
}

[[nodiscard]] inline std::string name_of(const std::optional<Checkpoint>& checkpoint) {
    return checkpoint ? checkpoint->path.filename().string() : "";
}

} // namespace rtrain::detail
