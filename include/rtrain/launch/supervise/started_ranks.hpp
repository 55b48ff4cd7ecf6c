// SPDX-License-Identifier: Apache-2.0
/// @file
/// StartedRanks: the processes of one start that are children of this one: the launcher, its
/// output, its exit.
#pragma once

#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/launch/supervise/mpirun.hpp>
#include <rtrain/launch/supervise/output_relay.hpp>
#include <rtrain/launch/supervise/sole_rank.hpp>
#include <rtrain/process/os/child.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <sys/wait.h>

namespace rtrain::launch {

class StartedRanks {
public:
    /// Starts the program on ranks. `when_ended` is called on `io` after the launcher has exited
    /// and all of its output is forwarded. Throws LaunchError [RT-L1].
    StartedRanks(boost::asio::io_context& io, const RanksCommand& command,
                 std::function<void()> when_ended)
        : when_ended_(std::move(when_ended)), timer_(io),
          launcher_(needs_no_mpirun(command) ? without_mpirun(command) : by_mpirun(command)),
          child_(Child::start(launcher_.words, launcher_.variables, launcher_.shares_input)) {
        const auto at_end = [this] {
            ++streams_ended_;
            tell();
        };
        try {
            const auto hear = [&](OutputStream stream) {
                return [stream, heard = command.heard](const RankLine& line) {
                    if (heard) {
                        heard(stream, line);
                    }
                };
            };
            const OutputRelay::Lines lines{.ranks = command.ranks, .tagged = launcher_.tags_lines};
            out_ = std::make_unique<OutputRelay>(
                io, child_.out, stdout, lines,
                OutputRelay::Handlers{hear(OutputStream::out), at_end});
            err_ = std::make_unique<OutputRelay>(
                io, child_.err, stderr, lines,
                OutputRelay::Handlers{hear(OutputStream::err), at_end});
        } catch (...) {
            end();
            throw;
        }
    }
    StartedRanks(const StartedRanks&) = delete;
    StartedRanks& operator=(const StartedRanks&) = delete;
    /// Even if the driver fails, no mpirun outlives it; ranks die with theirs.
    ~StartedRanks() { end(); }

    /// Call after a child process has exited.
    void reap() {
        int status = 0;
        if (!status_ && ::waitpid(child_.pid, &status, WNOHANG) == child_.pid) {
            status_ = status;
            tell();
            close_streams_later();
        }
    }

    void kill(int signal) const {
        if (!status_) {
            ::kill(child_.pid, signal);
        }
    }

    /// Kills the launcher without waiting; `with_output`: also discards output that was not
    /// consumed.
    void kill_at_last(bool with_output) {
        kill(SIGKILL);
        if (with_output) {
            close_streams();
        }
    }

    /// The launcher's exit status, as a shell reports it. Empty while it runs.
    [[nodiscard]] std::optional<int> status() const {
        return status_ ? std::optional(shell_status(*status_)) : std::nullopt;
    }
    /// True if output waits to be consumed.
    [[nodiscard]] bool is_output_blocked() const noexcept {
        return out_->is_behind() || err_->is_behind();
    }
    /// Time for which the launcher and the ranks have had no unprinted output.
    [[nodiscard]] OutputRelay::Clock::duration quiet_for() const {
        return std::min(out_->quiet_for(), err_->quiet_for());
    }

    [[nodiscard]] bool ended() const noexcept { return status_ && streams_ended_ == 2; }

    /// The cause of the launcher's exit; call after ended().
    [[nodiscard]] RankExit death() const {
        std::string says;
        for (const auto* relay : {out_.get(), err_.get()}) {
            for (const std::string& line : relay->own_lines()) {
                says += line + "\n";
            }
        }
        return launcher_.death(*status_, says);
    }

private:
    void end() noexcept {
        if (!status_) {
            ::kill(child_.pid, SIGKILL);
            (void)::waitpid(child_.pid, nullptr, 0);
        }
    }

    /// Processes that mpirun has started to reach other hosts may outlive it and keep the streams
    /// open. What was printed before is still read; `rounds`: the limit while others keep printing.
    void close_streams_later(int rounds = 20) {
        constexpr std::chrono::milliseconds patience{500};
        timer_.expires_after(patience);
        timer_.async_wait([this, rounds, patience](const boost::system::error_code& error) {
            if (!error && quiet_for() < patience && rounds > 0) {
                close_streams_later(is_output_blocked() ? rounds : rounds - 1);
            } else if (!error) {
                out_->stop_reading();
                err_->stop_reading();
            }
        });
    }

    void close_streams() {
        out_->close();
        err_->close();
    }

    void tell() {
        if (ended()) {
            when_ended_();
        }
    }

    std::function<void()> when_ended_;
    boost::asio::steady_timer timer_;
    Launcher launcher_;
    Child child_;
    std::unique_ptr<OutputRelay> out_;
    std::unique_ptr<OutputRelay> err_;
    int streams_ended_ = 0;
    std::optional<int> status_; ///< as waitpid() gives it
};

} // namespace rtrain::launch
