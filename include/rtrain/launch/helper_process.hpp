// SPDX-License-Identifier: Apache-2.0
/// @file
/// The process that validates checkpoints, as rank 0 starts and ends it.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/launch/helper.hpp>
#include <rtrain/process/os/child.hpp>
#include <rtrain/process/os/environment.hpp>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rtrain::launch {

/// The helper's command line, and variables added to this process's environment.
struct HelperProgram {
    std::vector<std::string> words;
    std::map<std::string, std::string> variables;
};

/// True if `setting`, "NAME=value", makes a process believe that it is a rank.
[[nodiscard]] inline bool is_rank_variable(std::string_view setting) {
    for (const std::string_view prefix :
         {"OMPI_", "ORTE_", "OPAL_", "PMIX_", "PRTE_", "PMI_", "MPI_LOCAL", "HYDI_", "HYDRA_",
          "SLURM_PROCID=", "SLURM_LOCALID=", "SLURM_NODEID=", "SLURM_STEP",
          "SLURM_TASK_PID=", sole_rank_variable}) {
        if (setting.starts_with(prefix)) {
            return true;
        }
    }
    return false;
}

/// A running helper and the socket to it. The destructor kills it and its children.
class HelperProcess {
public:
    /// Throws LaunchError [RT-L4].
    explicit HelperProcess(const HelperProgram& program) {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
            throw cannot_start(errno);
        }
        socket_ = ends[0];
        ::fcntl(socket_, F_SETFL, O_NONBLOCK);
        const int error = spawn(program, ends[1]);
        ::close(ends[1]);
        if (error != 0) {
            ::close(socket_);
            throw cannot_start(error);
        }
    }
    HelperProcess(const HelperProcess&) = delete;
    HelperProcess& operator=(const HelperProcess&) = delete;
    ~HelperProcess() {
        ::close(socket_);
        (void)end();
    }

    [[nodiscard]] int socket() const noexcept { return socket_; }

    /// Kills it, if it still runs, and returns its status from waitpid(); empty if other code has
    /// already reaped it. A dying process keeps its own exit status.
    std::optional<int> end() {
        if (pid_ <= 0) {
            return status_;
        }
        ::kill(-pid_, SIGKILL);
        int status = 0;
        pid_t ended = -1;
        do {
            ended = ::waitpid(pid_, &status, 0);
        } while (ended < 0 && errno == EINTR);
        if (ended == pid_) {
            status_ = status;
        }
        pid_ = -1;
        return status_;
    }

private:
    static LaunchError cannot_start(int error) {
        return {"RT-L4",
                detail::concat("cannot start the validation process: ", std::strerror(error))};
    }

    /// Uses posix_spawn(), because fork() would copy the page tables of a whole training process
    /// and make each of its pages fault again.
    int spawn(const HelperProgram& program, int end) {
        auto variables = program.variables;
        variables[Helper::parent_variable] = std::to_string(::getpid());
        const auto settings = environment_with(variables, is_rank_variable);
        const auto arguments = pointers_to(program.words);
        const auto environment = pointers_to(settings);
        posix_spawn_file_actions_t files;
        posix_spawnattr_t attributes;
        ::posix_spawn_file_actions_init(&files);
        ::posix_spawnattr_init(&attributes);
        ::posix_spawn_file_actions_adddup2(&files, end, Helper::socket);
        ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        ::posix_spawn_file_actions_addclosefrom_np(&files, Helper::socket + 1);
        // Its own process group, to be killed as a whole; and no blocked signals, unlike in our
        // thread.
        sigset_t none;
        sigemptyset(&none);
        ::posix_spawnattr_setpgroup(&attributes, 0);
        ::posix_spawnattr_setsigmask(&attributes, &none);
        ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
        const int error = ::posix_spawn(&pid_, arguments[0], &files, &attributes, arguments.data(),
                                        environment.data());
        ::posix_spawnattr_destroy(&attributes);
        ::posix_spawn_file_actions_destroy(&files);
        return error;
    }

    pid_t pid_ = -1;
    int socket_ = -1;
    std::optional<int> status_;
};

} // namespace rtrain::launch
