// SPDX-License-Identifier: Apache-2.0
/// @file
/// What ranks are started for, and what starts them: mpirun (mpirun.hpp), or nothing but fork()
/// (sole_rank.hpp).
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/launch/supervise/program.hpp>

#include <csignal>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/wait.h>

namespace rtrain::launch {

/// Ranks that are to be started.
struct RanksCommand {
    int ranks = 1;
    std::vector<std::string> arguments{}; ///< for mpirun: the user's, and where ranks go
    Program program{};
    std::map<std::string, std::string> variables{}; ///< for the ranks
    /// Where Open MPI keeps its files, when all ranks are on this machine; so none is left behind
    /// when it is killed.
    std::optional<std::filesystem::path> scratch{};
    std::optional<std::filesystem::path> shared_memory{};
    /// Whether the others are to live on when a rank dies; Open MPI 5 with ULFM only.
    bool survive_deaths = false;
    /// Whether this process's standard input stays its own. Else it goes to rank 0.
    bool keeps_input = false;
    /// Hears each line of the ranks; throws nothing.
    Heard heard{};

    /// All ranks are on this machine.
    [[nodiscard]] bool is_local() const noexcept { return scratch.has_value(); }
};

/// A rank's death as whoever has started it tells it.
struct Death {
    std::string text;           ///< "rank 1 was killed by signal 9 (Killed)"
    std::optional<int> signal;  ///< that killed it
    int rank = -1;              ///< -1: that is not told
    const char* code = nullptr; ///< of an error that each start must meet; null: none
};

/// By a signal. One of them is a limit that each start meets.
[[nodiscard]] inline Death killed_by(int signal, const std::string& name, int rank) {
    Death death{
        .text = detail::concat("rank ", rank, " was killed by signal ", signal, " (", name, ")"),
        .signal = signal,
        .rank = rank};
    if (signal == SIGXFSZ) {
        death.text += ": it wrote a file larger than `ulimit -f` allows; raise that";
        death.code = "RT-S45";
    }
    return death;
}

/// An exit status as the shell gives it: 128 + n for signal n.
[[nodiscard]] inline int shell_status(int wait_status) {
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

/// A process that is the ranks, or has them as children.
struct Launcher {
    std::vector<std::string> words{};               ///< program and arguments
    std::map<std::string, std::string> variables{}; ///< on top of the environment
    bool shares_input = true;                       ///< this process's standard input
    bool tags_lines = true;                         ///< those of ranks; else each line is rank 0's
    /// What ended the ranks, from its status as waitpid() gives it, and its own words.
    Death (*death)(int wait_status, const std::string& says) = nullptr;
};

} // namespace rtrain::launch
