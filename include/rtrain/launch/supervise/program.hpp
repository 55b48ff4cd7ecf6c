// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a Supervisor runs on its ranks, and the outcome it gets back
/// (launch/supervise/supervisor.hpp). It does not interpret the program or its result.
#pragma once

#include <rtrain/base/failure.hpp>
#include <rtrain/launch/control/events.hpp>
#include <rtrain/launch/supervise/rank_output.hpp>
#include <rtrain/process/os/child.hpp>
#include <rtrain/process/stdio/tee_thread.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::launch {

/// A program and its arguments.
struct Program {
    std::vector<std::string> words;

    /// This program, with the arguments it was started with.
    [[nodiscard]] static Program self() { return {own_command_line()}; }
    /// A different program.
    [[nodiscard]] static Program argv(std::vector<std::string> words) { return {std::move(words)}; }
};

/// Called with each line that a rank has printed.
using LineCallback = std::function<void(OutputStream, const RankLine&)>;

/// A start of the ranks that is being prepared.
struct LaunchRequest {
    int attempt = 1; ///< number of this start
    int ranks = 1;
    bool remote = false;                  ///< ranks may be on other machines
    const std::vector<std::string>& skip; ///< names of checkpoints not to resume from
};

/// Environment of one start of the ranks.
struct LaunchEnvironment {
    std::map<std::string, std::string> variables{}; ///< on top of the environment
    /// Directory of the control socket, and of Open MPI's own files when all ranks are on this
    /// machine; accessible only to this user.
    std::filesystem::path directory{};
    std::optional<std::filesystem::path> shared_memory{}; ///< the same, on tmpfs
    /// True if this process keeps its standard input; otherwise rank 0 gets it.
    bool keeps_input = false;
    /// One map per rank, on top of `variables`; only for a Task that needs no MPI, on this machine.
    std::vector<std::map<std::string, std::string>> rank_variables{};
};

/// Answers to a call that ranks make together.
struct CallAnswers {
    std::vector<std::pair<int, DriverEvent>> events{}; ///< each with the rank that gets it
    std::optional<event::Saved> saved{};               ///< a checkpoint was committed
};

struct Task {
    /// Its ranks report over the control channel. For a program that does not use it,
    /// HangConfig::enabled must be off, as no rank joins.
    Program program{};
    /// Called before each start; an exception ends the run. Afterwards `result` must not find
    /// anything from an earlier start.
    std::function<LaunchEnvironment(const LaunchRequest&)> prepare{};
    /// The program's result, once its ranks have exited; empty if it left none.
    std::function<std::optional<std::string>()> result{};
    /// Stores the result of ranks on another machine; throws only std::bad_alloc and StorageError.
    std::function<void(const std::string& result)> keep_result = [](const std::string&) {};
    /// The failure that a result describes; empty if the program succeeded. `interrupted` if the
    /// ranks only noticed that another process is gone.
    std::function<std::optional<Failure>(const std::string& result)> failure_in{};
    /// Failure of ranks that exited without a result.
    Failure without_result{};
    /// Called for each failure that has ended the ranks, before another start; throws nothing.
    std::function<void(const Failure&)> on_failure = [](const Failure&) {};
    /// Called with each line that ranks print, before it is shown; throws nothing.
    LineCallback heard{};
    /// Called when ranks that have survived a failure start over; throws nothing.
    std::function<void()> on_restart = [] {};
    /// Called when the next run starts in ranks that have completed one; from then on, `prepare`
    /// and all other members refer to that run.
    std::function<void(const std::string& run)> on_run = [](const std::string&) {};
    /// The call that ranks have to answer; each start of them gets it.
    std::function<std::optional<event::Call>()> open_call = [] {
        return std::optional<event::Call>();
    };
    /// Called with the answer to a call; throws nothing.
    std::function<void(const std::string& answer)> answered = [](const std::string&) {};
    /// False if ranks on this machine can be started without mpirun.
    bool needs_mpi = true;
    /// Called with Report, Stored, Meet, Log and, after `keep_result`, Ending; throws only
    /// std::bad_alloc.
    std::function<CallAnswers(int rank, const RankEvent&)> answer = [](int, const RankEvent&) {
        return CallAnswers{};
    };
};

/// Outcome of a run; at least one member is set.
struct RunEnd {
    std::optional<Failure> failure{};
    std::optional<std::string> result{}; ///< the program's, if it describes how the run ended
};

} // namespace rtrain::launch
