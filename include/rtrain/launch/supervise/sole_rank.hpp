// SPDX-License-Identifier: Apache-2.0
/// @file
/// A single rank needs no mpirun, and starts faster without it.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/launch/supervise/mpi_variables.hpp>
#include <rtrain/process/os/environment.hpp>

#include <cstring>
#include <optional>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

namespace rtrain::launch {

/// True for one rank on this machine, if its user requests nothing that only mpirun can do.
[[nodiscard]] inline bool needs_no_mpirun(const RanksCommand& command) {
    return command.ranks == 1 && command.is_local() && command.arguments.empty() &&
           !command.survive_deaths;
}

[[nodiscard]] inline RankExit death_of_sole_rank(int wait_status, const std::string& /*says*/) {
    if (WIFSIGNALED(wait_status)) {
        const int signal = WTERMSIG(wait_status);
        return killed_by(signal, ::strsignal(signal), 0);
    }
    return {detail::concat("rank 0 ended with exit code ", WEXITSTATUS(wait_status),
                           " before the training function returned"),
            std::nullopt, 0};
}

[[nodiscard]] inline Launcher without_mpirun(const RanksCommand& command) {
    Launcher launcher{.words = command.program.words,
                      .variables = mpi_variables(command),
                      // A terminal would stop it: not in the foreground process group.
                      .shares_input = !command.keeps_input && ::isatty(STDIN_FILENO) == 0,
                      .tags_lines = false,
                      .death = &death_of_sole_rank};
    launcher.variables[sole_rank_variable] = "1";
    // Otherwise Open MPI 4 starts a daemon for a single process.
    launcher.variables["OMPI_MCA_ess_singleton_isolated"] = "1";
    return launcher;
}

} // namespace rtrain::launch
