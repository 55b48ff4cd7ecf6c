// SPDX-License-Identifier: Apache-2.0
/// @file
/// What to start ranks with: mpirun (mpirun.hpp), or only fork() (without_mpirun.hpp).
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/launch/supervise/program.hpp>

#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/wait.h>

namespace rtrain::launch {

/// Ranks to be started.
struct RanksCommand {
    int ranks = 1;
    std::vector<std::string> arguments{}; ///< for mpirun: the user's, and the placement
    Program program{};
    std::map<std::string, std::string> variables{}; ///< for the ranks
    std::string name{};                             ///< in front of each line; empty: nothing
    /// Directory of Open MPI's files, if all ranks are on this machine, so that none is left behind
    /// when it is killed.
    std::optional<std::filesystem::path> scratch{};
    std::optional<std::filesystem::path> shared_memory{};
    /// True if the others survive when a rank dies; Open MPI 5 with ULFM only.
    bool survive_deaths = false;
    /// True if this process keeps its standard input; otherwise rank 0 gets it.
    bool keeps_input = false;
    /// Called with each line of the ranks; throws nothing.
    LineCallback heard{};
    /// False if ranks on this machine can do without mpirun.
    bool needs_mpi = true;
    /// One map per rank, on top of `variables`; mpirun gives all ranks the same.
    std::vector<std::map<std::string, std::string>> rank_variables{};

    /// True if all ranks are on this machine.
    [[nodiscard]] bool is_local() const noexcept { return scratch.has_value(); }
};

/// A rank's death, as reported by its launcher.
struct RankExit {
    std::string text;          ///< "rank 1 was killed by signal 9 (Killed)"
    std::optional<int> signal; ///< the one that killed it
    int rank = -1;             ///< -1: unknown
    ErrorCode code{};          ///< of an error that every start repeats; empty: none
};

/// Death by a signal. SIGXFSZ is a limit that every start runs into.
[[nodiscard]] inline RankExit killed_by(int signal, const std::string& name, int rank) {
    RankExit death{
        .text = detail::concat("rank ", rank, " was killed by signal ", signal, " (", name, ")"),
        .signal = signal,
        .rank = rank};
    if (signal == SIGXFSZ) {
        death.text += ": it wrote a file larger than `ulimit -f` allows; raise that limit";
        death.code = "RT-S45";
    }
    return death;
}

/// Exit status as a shell reports it: 128 + n for signal n.
[[nodiscard]] inline int shell_status(int wait_status) {
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

/// A process to start: a rank, or the parent of all ranks.
struct LaunchedProcess {
    std::vector<std::string> words{};               ///< program and arguments
    std::map<std::string, std::string> variables{}; ///< on top of the environment
    bool shares_input = true;                       ///< this process's standard input
    std::optional<int> rank{}; ///< empty: the parent of all ranks, which tags their lines
};

struct Launcher {
    std::vector<LaunchedProcess> processes; ///< all ranks in their order, or their parent alone
    /// How ranks ended, from the status of waitpid() and the parent's own output. `rank`: the one
    /// that is this process; -1: it is their parent.
    std::function<RankExit(int rank, int wait_status, const std::string& says)> death;
};

} // namespace rtrain::launch
