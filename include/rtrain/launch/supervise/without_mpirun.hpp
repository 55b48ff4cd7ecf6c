// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks that are children of this process, without mpirun: a single rank, which starts faster this
/// way, and ranks that need no MPI.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/launch/supervise/mpi_variables.hpp>
#include <rtrain/process/os/environment.hpp>

#include <cstddef>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

namespace rtrain::launch {

/// True for ranks on this machine that request nothing that only mpirun can do.
[[nodiscard]] inline bool needs_no_mpirun(const RanksCommand& command) {
    return (command.ranks == 1 || !command.needs_mpi) && command.is_local() &&
           command.arguments.empty() && !command.survive_deaths;
}

/// Describes the end of a rank, from the status of waitpid().
[[nodiscard]] inline RankExit death_of_rank(int rank, int wait_status, bool needs_mpi) {
    if (WIFSIGNALED(wait_status)) {
        const int signal = WTERMSIG(wait_status);
        return killed_by(signal, ::strsignal(signal), rank);
    }
    return {.text =
                detail::concat("rank ", rank, " ended with exit code ", WEXITSTATUS(wait_status),
                               needs_mpi ? " before the training function returned" : ""),
            .signal = std::nullopt,
            .rank = rank};
}

[[nodiscard]] inline Launcher without_mpirun(const RanksCommand& command) {
    Launcher launcher{
        .processes = {},
        .death = [needs_mpi = command.needs_mpi](int rank, int wait_status, const std::string&) {
            return death_of_rank(rank, wait_status, needs_mpi);
        }};
    auto variables = command.needs_mpi ? mpi_variables(command) : command.variables;
    if (command.needs_mpi) {
        variables[sole_rank_variable] = "1";
        // Otherwise Open MPI 4 starts a daemon for a single process.
        variables["OMPI_MCA_ess_singleton_isolated"] = "1";
    }
    // A terminal would stop a rank, which is not in the foreground process group.
    const bool shares_input = !command.keeps_input && ::isatty(STDIN_FILENO) == 0;
    for (int rank = 0; rank < command.ranks; ++rank) {
        const auto index = static_cast<std::size_t>(rank);
        std::map<std::string, std::string> own;
        if (index < command.rank_variables.size()) {
            own = command.rank_variables[index];
        }
        own.insert(variables.begin(), variables.end());
        launcher.processes.push_back({.words = command.program.words,
                                      .variables = std::move(own),
                                      .shares_input = shares_input && rank == 0,
                                      .rank = rank});
    }
    return launcher;
}

} // namespace rtrain::launch
