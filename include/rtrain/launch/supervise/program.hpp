// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a Supervisor runs on its ranks, and what it learns of how that ended
/// (launch/supervise/supervisor.hpp). It knows neither what the program does nor what its result
/// means.
#pragma once

#include <rtrain/base/failure.hpp>
#include <rtrain/launch/supervise/rank_output.hpp>
#include <rtrain/process/child.hpp>
#include <rtrain/process/tee_thread.hpp>

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

    /// This one, as it was started.
    [[nodiscard]] static Program self() { return {own_command_line()}; }
    /// Another one.
    [[nodiscard]] static Program argv(std::vector<std::string> words) { return {std::move(words)}; }
};

/// Hears a line that a rank has printed.
using Heard = std::function<void(OutputStream, const RankLine&)>;

/// What one start of the ranks is given.
struct Surroundings {
    std::map<std::string, std::string> variables{}; ///< on top of the environment
    /// Where the control socket is made, and Open MPI's own files when all ranks are on this
    /// machine; this user's, and closed to others.
    std::filesystem::path directory{};
    std::optional<std::filesystem::path> shared_memory{}; ///< the same in memory
    /// Whether this process's standard input stays its own. Else it goes to rank 0.
    bool keeps_input = false;
};

struct Task {
    /// Its ranks say over the control channel what they do. For a program that does not know it,
    /// HangConfig::enabled must be off: nobody joins.
    Program program{};
    /// Called before each start; what it throws ends the run. `remote`: ranks may be on other
    /// machines. `skip`: names of checkpoints not to go on from. Nothing of an earlier start may be
    /// found by `result` afterwards.
    std::function<Surroundings(bool remote, const std::vector<std::string>& skip)> prepare{};
    /// What the program has left to say how it ended, once its ranks are gone; none: nothing.
    std::function<std::optional<std::string>()> result{};
    /// Keeps what ranks on another machine have to leave there; throws nothing but std::bad_alloc
    /// and StorageError.
    std::function<void(const std::string& result)> keep_result = [](const std::string&) {};
    /// The failure that such a result tells of; none: the program has succeeded. `interrupted` when
    /// the ranks only know that another process is gone.
    std::function<std::optional<Failure>(const std::string& result)> failure_in{};
    /// Of ranks that have ended by themselves and left nothing.
    Failure without_result{};
    /// Told of each failure that has ended the ranks, before another start; throws nothing.
    std::function<void(const Failure&)> on_failure = [](const Failure&) {};
    /// Hears each line that ranks print, before it is shown; throws nothing.
    Heard heard{};
    /// Told when ranks that have survived a failure begin anew; throws nothing.
    std::function<void()> on_restart = [] {};
    /// Told when another run begins in ranks that have ended one well; `prepare` and all else are
    /// of that run from now on.
    std::function<void(const std::string& run)> on_run = [](const std::string&) {};
};

/// How a run ended: none of both never.
struct RunEnd {
    std::optional<Failure> failure{};
    std::optional<std::string> result{}; ///< the program's, when it says how the run ended
};

} // namespace rtrain::launch
