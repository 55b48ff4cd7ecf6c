// SPDX-License-Identifier: Apache-2.0
/// @file
/// Handlers of a Job's events (launch/supervise/job.hpp).
#pragma once

#include <rtrain/base/failure.hpp>
#include <rtrain/launch/control/decision.hpp>
#include <rtrain/launch/control/events.hpp>
#include <rtrain/launch/supervise/job_end.hpp>
#include <rtrain/launch/supervise/program.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace rtrain::launch {

struct JobHandlers {
    /// All ranks have exited; called once. mpirun may still be cleaning up.
    std::function<void(JobEnd)> over;
    /// mpirun has exited, too; called once, after `over`.
    std::function<void()> ended;
    /// A checkpoint with `iteration` reports was committed.
    std::function<void(const std::string& checkpoint, std::int64_t iteration)> saved;
    /// The ranks sent a result that is not stored on this machine.
    std::function<void(const std::string& result)> left_result;
    /// Decides how to handle a failure that all ranks, or all but lost ones, have survived.
    std::function<Decision(const Failure&, const std::string& checkpoint)> decide;
    /// True if a rank's death alone suffices to act. Otherwise the job waits about a second for
    /// mpirun to report the cause.
    std::function<bool()> in_a_hurry;
    /// `ranks` ranks continue after others have died.
    std::function<void(int ranks)> shrunk;
    /// A run has succeeded; another may follow in these ranks.
    std::function<void()> run_ended;
    /// The next run starts in these ranks.
    std::function<void(const std::string& run)> run_begins;
    /// The ranks have answered a call of main().
    std::function<void(const std::string& answer)> answered;
    /// A rank makes a call, or its program has ended.
    std::function<CallAnswers(int rank, const RankEvent&)> answer;
};

} // namespace rtrain::launch
