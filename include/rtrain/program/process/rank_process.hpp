// SPDX-License-Identifier: Apache-2.0
/// @file
/// RankProcess: a program in its own process group, which ends with this process, whatever kills
/// it.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/os/child.hpp>
#include <rtrain/process/os/others.hpp>
#include <rtrain/process/os/processor_time.hpp>
#include <rtrain/program/process/forked_rank.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rtrain::program {

/// The kernel kills only the program itself when this process dies. A second process, the guard,
/// then kills the rest of its group, such as data loader workers. Members are thread-safe.
class RankProcess {
public:
    /// The system's error, if the program cannot be executed.
    struct CannotStart {
        int error;
    };

    /// Starts `words` with `variables` on top of this environment; words[0] is a path. Call in the
    /// main thread, with which the program ends. Throws CannotStart.
    RankProcess(const std::vector<std::string>& words,
                const std::map<std::string, std::string>& variables) {
        const auto settings = launch::environment_with(variables);
        const auto arguments = launch::pointers_to(words);
        const auto environment = launch::pointers_to(settings);
        int failed[2];
        if (::pipe2(failed, O_CLOEXEC) != 0) {
            throw CannotStart{errno};
        }
        const pid_t parent = ::getpid();
        pid_ = ::fork();
        if (pid_ == 0) {
            execute(parent, arguments[0], arguments.data(), environment.data(), failed[1]);
        }
        ::close(failed[1]);
        start_guard();
        int error = errno;
        const bool has_failed = pid_ < 0 || ::read(failed[0], &error, sizeof error) > 0;
        ::close(failed[0]);
        if (has_failed) {
            (void)wait();
            throw CannotStart{error};
        }
    }
    /// The same for a process that a preload server has forked. Throws CannotStart.
    explicit RankProcess(ForkedRank rank) : pid_(rank.pid()), forked_(std::move(rank)) {
        start_guard();
    }
    RankProcess(const RankProcess&) = delete;
    RankProcess& operator=(const RankProcess&) = delete;
    ~RankProcess() { (void)wait(); }

    [[nodiscard]] pid_t pid() const noexcept { return pid_; }

    /// For poll(): readable once a forked process has ended; -1 for others, which send SIGCHLD.
    [[nodiscard]] int end() const noexcept { return forked_ ? forked_->end() : -1; }

    /// Processor time of a process that is not a child of this one.
    [[nodiscard]] double processor_time_s() const {
        return forked_ ? process::processor_time_of_s(pid_) : 0;
    }

    /// True if the program has ended, though wait() has not been called.
    [[nodiscard]] bool has_ended() const {
        if (forked_) {
            return forked_->has_ended();
        }
        siginfo_t info{};
        return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
               info.si_pid != 0;
    }

    /// Sends a signal to the program, not to its children, which often do not handle it.
    void signal(int number) {
        const std::lock_guard lock(mutex_);
        if (!is_reaped_) {
            ::kill(pid_, number);
        }
    }

    /// Kills the whole group.
    void kill() noexcept {
        const std::lock_guard lock(mutex_);
        kill_group();
    }

    /// Ends the group with SIGABRT, process by process, so that what each prints is not mixed.
    /// Returns after the last has ended, or `limit`. Without core files.
    void abort() {
        const std::lock_guard lock(mutex_);
        if (is_reaped_) {
            return;
        }
        constexpr std::chrono::seconds limit{4}; // the driver waits longer for the stacks
        const auto deadline = std::chrono::steady_clock::now() + limit;
        for (const pid_t member : members()) {
            constexpr rlimit no_core{1, 1}; // also none in a pipe
            (void)::prlimit(member, RLIMIT_CORE, &no_core, nullptr);
            // To the main thread: with another one, a stopped program would run on meanwhile.
            ::tgkill(member, member, SIGABRT);
            ::kill(member, SIGCONT);
            while (storage::process_is_alive(member) &&
                   std::chrono::steady_clock::now() < deadline) {
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
            }
        }
        kill_group();
    }

    /// Waits for the program, and kills what is left of its group. Returns the status of waitpid().
    int wait() {
        await_end();
        const std::lock_guard lock(mutex_);
        if (!is_reaped_ && pid_ > 0) {
            kill_group(); // before its number is free
            if (forked_) {
                forked_.reset();
            } else {
                ::waitpid(pid_, &status_, 0);
            }
        }
        is_reaped_ = true;
        if (guard_ > 0) {
            (void)!::write(alive_, "", 1);
            ::waitpid(guard_, nullptr, 0);
            guard_ = -1;
        }
        if (alive_ >= 0) {
            ::close(alive_);
            alive_ = -1;
        }
        return status_;
    }

private:
    void start_guard() {
        int alive[2];
        if (::pipe2(alive, O_CLOEXEC) != 0) {
            const int error = errno;
            kill_group();
            (void)wait();
            throw CannotStart{error};
        }
        guard_ = pid_ > 0 ? ::fork() : -1;
        if (guard_ == 0) {
            stand_guard(pid_, alive[0]);
        }
        ::close(alive[0]);
        alive_ = alive[1];
    }

    void await_end() {
        if (is_reaped_ || pid_ <= 0) {
            return;
        }
        if (forked_) {
            status_ = forked_->wait();
            return;
        }
        siginfo_t info{};
        while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 &&
               errno == EINTR) {
        }
    }

    [[noreturn]] static void execute(pid_t parent, const char* program, char* const* arguments,
                                     char* const* environment, int failed) {
        sigset_t none;
        sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        ::signal(SIGPIPE, SIG_DFL);
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() == parent) {
            ::setpgid(0, 0);
            if (::isatty(STDIN_FILENO) != 0) { // it would be stopped: not in the foreground
                ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
            }
            ::execve(program, arguments, environment);
        }
        const int error = errno;
        (void)!::write(failed, &error, sizeof error);
        ::_exit(127);
    }

    /// Ends when a byte arrives, or kills the group when the pipe is closed without one.
    [[noreturn]] static void stand_guard(pid_t group, int alive) {
        ::setpgid(0, 0); // a signal to the parent's group must not reach it
        sigset_t all;
        sigfillset(&all);
        ::sigprocmask(SIG_SETMASK, &all, nullptr);
        ::dup2(alive, 0);
        ::close_range(1, ~0U, 0);
        char byte = 0;
        ssize_t got = 0;
        do {
            got = ::read(0, &byte, 1);
        } while (got < 0 && errno == EINTR);
        if (got <= 0) {
            ::kill(-group, SIGKILL);
        }
        ::_exit(0);
    }

    void kill_group() const noexcept {
        if (!is_reaped_ && pid_ > 0) {
            ::kill(-pid_, SIGKILL);
            ::kill(pid_, SIGKILL); // before it has joined its group
        }
    }

    /// The processes of the group, parents first.
    [[nodiscard]] std::vector<pid_t> members() const {
        std::vector<pid_t> found;
        std::error_code error;
        for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
             entry.increment(error)) {
            const std::string name = entry->path().filename().string();
            pid_t number = 0;
            std::from_chars(name.data(), name.data() + name.size(), number);
            if (number > 0 && ::getpgid(number) == pid_) {
                found.push_back(number);
            }
        }
        std::sort(found.begin(), found.end());
        return found;
    }

    pid_t pid_ = -1;
    pid_t guard_ = -1;
    int alive_ = -1; ///< the guard's pipe
    int status_ = 0;
    std::optional<ForkedRank> forked_;
    bool is_reaped_ = false;
    std::mutex mutex_;
};

} // namespace rtrain::program
