// SPDX-License-Identifier: Apache-2.0
/// @file
/// A process that runs trials, as seen by the search: its output, its exit, and how to end it.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/text/duration.hpp>
#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/process/stdio/end_of_run.hpp>
#include <rtrain/tune/threads/trial.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rtrain::tune::internal {

/// Forwards the output of a pipe line by line, prefixed with a name.
class NamedLines {
public:
    NamedLines(int pipe, std::FILE* to) : pipe_(pipe), to_(to) {}

    /// Sets the trial of the following lines.
    void begin(std::string name) {
        name_ = std::move(name);
        has_run_ended_ = false;
    }
    /// True if all output of the run was received; the run may end before the process.
    [[nodiscard]] bool has_run_ended() const noexcept { return has_run_ended_; }
    /// The pipe; -1 at its end.
    [[nodiscard]] int descriptor() const noexcept { return is_open_ ? pipe_.get() : -1; }
    [[nodiscard]] bool is_open() const noexcept { return is_open_; }
    void pass_on() {
        char buffer[4096];
        const ssize_t got = ::read(pipe_.get(), buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) {
            return;
        }
        text_.append(buffer, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        if (got <= 0 && !text_.empty()) {
            text_ += '\n';
        }
        for (std::size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
            const std::string line = "[" + name_ + "] " + text_.substr(0, end + 1);
            if (text_.substr(0, end) == launch::end_of_run) {
                has_run_ended_ = true;
            } else {
                std::fwrite(line.data(), 1, line.size(), to_);
            }
            text_.erase(0, end + 1);
        }
        std::fflush(to_);
        is_open_ = got > 0;
    }

private:
    process::Descriptor pipe_;
    std::FILE* to_;
    std::string name_;
    std::string text_;
    bool is_open_ = true;
    bool has_run_ended_ = false;
};

/// A child that does not outlive this object.
class OwnedChild {
public:
    explicit OwnedChild(pid_t pid)
        : pid_(pid), end_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
    OwnedChild(const OwnedChild&) = delete;
    OwnedChild& operator=(const OwnedChild&) = delete;
    ~OwnedChild() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            (void)wait();
        }
    }
    /// For poll(): readable once the child has exited; -1 where the kernel has no pidfd.
    [[nodiscard]] int end() const noexcept { return end_.get(); }
    /// Returns the status of waitpid().
    int wait() {
        int status = 0;
        while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        pid_ = -1;
        return status;
    }

private:
    pid_t pid_;
    process::Descriptor end_;
};

/// Ends the process of a trial that keeps running although the search has ended it.
class Cleanup {
public:
    /// `limit_s`: time for the trial to return, in seconds; 0: no limit.
    Cleanup(pid_t pid, double limit_s) : pid_(pid), limit_s_(limit_s) {}

    /// Does what is due, and returns the timeout for poll(), in milliseconds.
    [[nodiscard]] int wait_ms(const Trial& trial) {
        if (limit_s_ == 0 || !trial.should_stop()) {
            return -1;
        }
        const auto now = Clock::now();
        if (!due_) {
            due_ = now + rtrain::detail::duration_of(std::min(limit_s_, longest_s));
        } else if (now >= *due_) {
            strike(trial);
            due_ = now + again;
        }
        return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(*due_ - now).count());
    }
    [[nodiscard]] bool has_struck() const noexcept { return has_struck_; }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr double longest_s = 1e6; // the longest wait of poll()
    static constexpr std::chrono::seconds again{10};

    /// Sends SIGHUP first, like a closed terminal: it ends the ranks immediately and leaves
    /// nothing.
    void strike(const Trial& trial) {
        if (!has_struck_) {
            console::warn("trial %s has not returned %g s after the search stopped it; its "
                          "processes are ended",
                          trial.id().c_str(), limit_s_);
        }
        ::kill(pid_, std::exchange(has_struck_, true) ? SIGKILL : SIGHUP);
    }

    pid_t pid_;
    double limit_s_;
    std::optional<Clock::time_point> due_;
    bool has_struck_ = false;
};

} // namespace rtrain::tune::internal
