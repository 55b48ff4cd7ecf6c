// SPDX-License-Identifier: Apache-2.0
/// @file
/// mpirun as a launcher: its command line, and parsing of its reports about dead ranks.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/launch/supervise/mpi_variables.hpp>
#include <rtrain/launch/supervise/mpirun_version.hpp>
#include <rtrain/process/os/child.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::launch {

/// mpirun's command line.
[[nodiscard]] inline std::vector<std::string> mpirun_words(const std::filesystem::path& mpirun,
                                                           const RanksCommand& command,
                                                           const MpirunVersion& version) {
    std::vector<std::string> words{mpirun.string(), "-n", std::to_string(command.ranks)};
    if (version.is_hydra) { // passes all variables to all ranks; tags by this pattern
        words.insert(words.end(), {"-prepend-pattern", "[1,%r]<stdout>:"});
    } else {
        words.emplace_back("--tag-output");
        if (command.survive_deaths) {
            words.insert(words.end(), {"--with-ft", "ulfm"});
        }
        for (const auto& [name, value] : command.variables) { // for ranks on other nodes
            words.insert(words.end(), {"-x", name});
        }
    }
    words.insert(words.end(), command.arguments.begin(), command.arguments.end());
    words.insert(words.end(), command.program.words.begin(), command.program.words.end());
    return words;
}

/// True if mpirun reports that it cannot execute the command at all: an unknown option, or a
/// program or directory that does not exist.
[[nodiscard]] inline bool refuses(const std::string& mpirun_says) {
    constexpr std::array says{"unknown option",
                              "unrecognized option",
                              "unrecognized argument",
                              "is not recognized",
                              "No executable was specified",
                              "unable to launch the specified application",
                              "orte_session_dir failed"};
    return std::any_of(says.begin(), says.end(), [&](const char* words) {
        return mpirun_says.find(words) != std::string::npos;
    });
}

/// Describes what ended the job, from mpirun's output and its exit status.
[[nodiscard]] inline RankExit describe_death(int status, const std::string& mpirun_says) {
    const auto from = [](const char* text, const char* words) {
        const char* const found = std::strstr(text, words);
        return found ? found : "";
    };
    int rank = 0;
    int number = 0;
    std::array<char, 64> signal{};
    const char* const process = from(mpirun_says.c_str(), "process rank ");
    if (std::sscanf(process, "process rank %d", &rank) == 1 &&
        std::sscanf(from(process, "on signal "), "on signal %d (%63[^)])", &number,
                    signal.data()) == 2) {
        return killed_by(number, signal.data(), rank);
    }
    if (*process != '\0' && *from(process, "exiting improperly") != '\0') { // exit code 0
        return {detail::concat("rank ", rank,
                               " exited, for example by _exit(), before the training function "
                               "returned; return from it, or throw an exception"),
                std::nullopt, rank};
    }
    if (std::sscanf(from(mpirun_says.c_str(), "EXIT STRING: "), "EXIT STRING: %63[^(](signal %d)",
                    signal.data(), &number) == 2) { // hydra
        std::string name = signal.data();           // "Killed "
        name.erase(name.find_last_not_of(' ') + 1);
        return {detail::concat("a rank was killed by signal ", number, " (", name, ")"), number};
    }
    if (std::sscanf(from(mpirun_says.c_str(), "Process name: [["),
                    "Process name: [[%*[^]]],%d] Exit code: %d", &rank, &number) == 2) {
        return {detail::concat("rank ", rank, " ended with exit code ", number,
                               " before the training function returned"),
                std::nullopt, rank};
    }
    if (mpirun_says.find("unable to find network interfaces") != std::string::npos) {
        return {.text = "mpirun needs a network interface, but this machine or container has none; "
                        "switch on the loopback interface (`ip link set lo up`), or give the "
                        "container a network",
                .signal = std::nullopt,
                .code = "RT-L46"};
    }
    return {.text = detail::concat("the ranks ended early: mpirun's exit status is ", status,
                                   mpirun_says.empty() ? "" : "; its output:\n", mpirun_says),
            .signal = std::nullopt,
            .code = refuses(mpirun_says) ? ErrorCode("RT-L87") : ErrorCode()};
}

/// Throws LaunchError [RT-L1].
[[nodiscard]] inline Launcher by_mpirun(const RanksCommand& command) {
    const auto program = find_program("mpirun");
    if (!program) {
        throw LaunchError("RT-L1", "mpirun is not on PATH (only absolute directories count); "
                                   "install it (Debian: apt-get install openmpi-bin), or start the "
                                   "program with your own launcher");
    }
    const MpirunVersion version = MpirunVersion::on_path();
    return {.processes = {{.words = mpirun_words(*program, command, version),
                           .variables = mpi_variables(command, version),
                           .shares_input = !command.keeps_input}},
            .death = [](int, int wait_status, const std::string& says) {
                return describe_death(shell_status(wait_status), says);
            }};
}

} // namespace rtrain::launch
