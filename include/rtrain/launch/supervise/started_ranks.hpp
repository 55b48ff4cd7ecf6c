// SPDX-License-Identifier: Apache-2.0
/// @file
/// StartedRanks: the processes of one start that are children of this one, their output, and their
/// exits: mpirun, or the ranks themselves.
#pragma once

#include <rtrain/launch/supervise/child_exit.hpp>
#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/launch/supervise/lifetime.hpp>
#include <rtrain/launch/supervise/mpirun.hpp>
#include <rtrain/launch/supervise/output_relay.hpp>
#include <rtrain/launch/supervise/without_mpirun.hpp>
#include <rtrain/process/os/child.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>

namespace rtrain::launch {

class StartedRanks {
public:
    struct Handlers {
        /// All processes have exited, and all of their output is forwarded.
        std::function<void()> ended;
        /// A rank without mpirun was killed, or has exited with a code other than 0.
        std::function<void(const RankExit&)> failed = [](const RankExit&) {};
    };

    /// Starts the program on ranks. Handlers are called on `io`. Throws LaunchError [RT-L1].
    StartedRanks(boost::asio::io_context& io, const RanksCommand& command, Handlers handlers)
        : handlers_(std::move(handlers)), timer_(io),
          launcher_(needs_no_mpirun(command) ? without_mpirun(command) : by_mpirun(command)) {
        children_.reserve(launcher_.processes.size()); // so that a started one is not lost
        const auto relay = [&](std::FILE* target, OutputStream stream) {
            return std::make_unique<OutputRelay>(
                io, target, command.ranks,
                OutputRelay::Handlers{[stream, heard = command.heard](const RankLine& line) {
                                          if (heard) {
                                              heard(stream, line);
                                          }
                                      },
                                      [this] {
                                          ++streams_ended_;
                                          tell();
                                      }},
                command.name);
        };
        out_ = relay(stdout, OutputStream::out);
        err_ = relay(stderr, OutputStream::err);
        try {
            for (const LaunchedProcess& process : launcher_.processes) {
                const Child child =
                    Child::start(process.words, process.variables, process.shares_input);
                children_.push_back({.process = child, .exit = ChildExit(io)});
                out_->add(child.out, process.rank);
                err_->add(child.err, process.rank);
                await_exit(children_.size() - 1);
            }
        } catch (...) {
            end();
            throw;
        }
    }
    StartedRanks(const StartedRanks&) = delete;
    StartedRanks& operator=(const StartedRanks&) = delete;
    /// Even if the driver fails, no mpirun outlives it; ranks die with theirs.
    ~StartedRanks() { end(); }

    /// Sends a signal to mpirun, or to each rank with the processes that it has started.
    void kill(int signal) const {
        for (const StartedChild& child : children_) {
            if (!child.status) {
                ::kill(are_ranks() ? -child.process.pid : child.process.pid, signal);
            }
        }
    }

    /// Ends all ranks. mpirun also reaches those on other machines.
    void terminate() const { kill(are_ranks() ? SIGKILL : SIGTERM); }

    /// Kills the processes without waiting; `with_output`: also discards output that was not
    /// consumed.
    void kill_at_last(bool with_output) {
        kill(SIGKILL);
        if (with_output) {
            close_streams();
        }
    }

    /// True if the processes are the ranks themselves; `failed` is called for these only.
    [[nodiscard]] bool are_ranks() const noexcept {
        return launcher_.processes.front().rank.has_value();
    }
    /// The failure of a rank without mpirun; empty if it runs, or has exited with 0.
    [[nodiscard]] std::optional<RankExit> exit_of(int rank) const {
        const auto& status = children_[are_ranks() ? static_cast<std::size_t>(rank) : 0].status;
        return are_ranks() && status.value_or(0) != 0
                   ? std::optional(launcher_.death(rank, *status, ""))
                   : std::nullopt;
    }

    /// The exit status of mpirun, or of the first rank that failed, as a shell reports it. Empty
    /// while one runs.
    [[nodiscard]] std::optional<int> status() const {
        return have_exited() ? std::optional(shell_status(*decisive().status)) : std::nullopt;
    }
    /// True if output waits to be consumed.
    [[nodiscard]] bool is_output_blocked() const noexcept {
        return out_->is_behind() || err_->is_behind();
    }
    /// Time for which the launcher and the ranks have had no unprinted output.
    [[nodiscard]] OutputRelay::Clock::duration quiet_for() const {
        return std::min(out_->quiet_for(), err_->quiet_for());
    }

    [[nodiscard]] bool ended() const noexcept { return have_exited() && streams_ended_ == 2; }

    /// The cause of the exit with status(); call after ended().
    [[nodiscard]] RankExit death() const {
        std::string says;
        for (const auto* relay : {out_.get(), err_.get()}) {
            for (const std::string& line : relay->own_lines()) {
                says += line + "\n";
            }
        }
        const int rank = are_ranks() ? static_cast<int>(first_failed_.value_or(0)) : -1;
        return launcher_.death(rank, *decisive().status, says);
    }

private:
    struct StartedChild {
        Child process;
        ChildExit exit;
        std::optional<int> status{}; ///< as waitpid() gives it
    };

    [[nodiscard]] bool have_exited() const noexcept {
        return std::all_of(children_.begin(), children_.end(),
                           [](const StartedChild& child) { return child.status.has_value(); });
    }
    [[nodiscard]] const StartedChild& decisive() const {
        return children_[first_failed_.value_or(0)];
    }

    void await_exit(std::size_t i) {
        const pid_t pid = children_[i].process.pid;
        children_[i].exit.wait(
            pid, lifetime_.guard([this, i, pid](const boost::system::error_code& error) {
                if (!error && end_group_of_failed(pid)) {
                    reap(i);
                } else if (!error) {
                    await_exit(i);
                }
            }));
    }

    /// Returns false if the process runs. What a failed rank has started is killed while its
    /// process group certainly exists.
    [[nodiscard]] bool end_group_of_failed(pid_t pid) const {
        siginfo_t seen{};
        const int found =
            ::waitid(P_PID, static_cast<id_t>(pid), &seen, WEXITED | WNOHANG | WNOWAIT);
        if (found == 0 && seen.si_pid == 0) {
            return false;
        }
        if (found == 0 && are_ranks() && (seen.si_code != CLD_EXITED || seen.si_status != 0)) {
            ::kill(-pid, SIGKILL);
        }
        return true;
    }

    /// The status is 0 if another part of the program has called waitpid().
    void reap(std::size_t i) {
        int status = 0;
        (void)::waitpid(children_[i].process.pid, &status, 0);
        children_[i].status = status;
        if (status != 0 && !first_failed_) {
            first_failed_ = i;
        }
        if (const auto failure = exit_of(static_cast<int>(i))) {
            handlers_.failed(*failure);
        }
        if (have_exited()) {
            close_streams_later();
            tell();
        }
    }

    void end() noexcept {
        kill(SIGKILL);
        for (const StartedChild& child : children_) {
            if (!child.status) {
                (void)::waitpid(child.process.pid, nullptr, 0);
            }
        }
    }

    /// Processes that mpirun has started to reach other hosts may outlive it and keep the streams
    /// open. What was printed before is still read; `rounds`: the limit while others keep printing.
    void close_streams_later(int rounds = 20) {
        constexpr std::chrono::milliseconds patience{500};
        timer_.expires_after(patience);
        timer_.async_wait(
            lifetime_.guard([this, rounds, patience](const boost::system::error_code& error) {
                if (!error && quiet_for() < patience && rounds > 0) {
                    close_streams_later(is_output_blocked() ? rounds : rounds - 1);
                } else if (!error) {
                    out_->stop_reading();
                    err_->stop_reading();
                }
            }));
    }

    void close_streams() {
        out_->close();
        err_->close();
    }

    void tell() {
        if (ended()) {
            handlers_.ended();
        }
    }

    Handlers handlers_;
    boost::asio::steady_timer timer_;
    Launcher launcher_;
    std::vector<StartedChild> children_; ///< of launcher_.processes
    std::optional<std::size_t> first_failed_;
    std::unique_ptr<OutputRelay> out_;
    std::unique_ptr<OutputRelay> err_;
    int streams_ended_ = 0;
    Lifetime lifetime_;
};

} // namespace rtrain::launch
