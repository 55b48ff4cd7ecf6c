// SPDX-License-Identifier: Apache-2.0
/// @file
/// StartedRanks: the processes of one start, as far as this one is their parent: the launcher, its
/// output, how it ends.
#pragma once

#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/launch/supervise/mpirun.hpp>
#include <rtrain/launch/supervise/output_relay.hpp>
#include <rtrain/launch/supervise/sole_rank.hpp>
#include <rtrain/process/child.hpp>

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
    /// Starts the program on ranks. `when_ended` is called, from the `io` that is run, when the
    /// launcher has ended and all of its output is passed on. Throws LaunchError [RT-L1].
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
            out_ = std::make_unique<OutputRelay>(io, child_.out, stdout, lines,
                                                 hear(OutputStream::out), at_end);
            err_ = std::make_unique<OutputRelay>(io, child_.err, stderr, lines,
                                                 hear(OutputStream::err), at_end);
        } catch (...) {
            end();
            throw;
        }
    }
    StartedRanks(const StartedRanks&) = delete;
    StartedRanks& operator=(const StartedRanks&) = delete;
    /// When the driver has failed, no mpirun outlives it; ranks die with theirs.
    ~StartedRanks() { end(); }

    /// To be called when a child process has ended.
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

    /// Without waiting for anything; `with_output`: also not for whoever is to take what the ranks
    /// have printed.
    void kill_at_last(bool with_output) {
        kill(SIGKILL);
        if (with_output) {
            close_streams();
        }
    }

    /// The launcher's, as the shell gives it. Empty while it runs.
    [[nodiscard]] std::optional<int> status() const {
        return status_ ? std::optional(shell_status(*status_)) : std::nullopt;
    }
    /// Whether somebody has to read before more is printed.
    [[nodiscard]] bool is_output_blocked() const noexcept {
        return out_->is_behind() || err_->is_behind();
    }
    /// For how long the launcher and the ranks have printed nothing that is not printed here.
    [[nodiscard]] OutputRelay::Clock::duration quiet_for() const {
        return std::min(out_->quiet_for(), err_->quiet_for());
    }

    [[nodiscard]] bool ended() const noexcept { return status_ && streams_ended_ == 2; }

    /// What has ended them; once ended().
    [[nodiscard]] Death death() const {
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

    /// What mpirun has started to reach other hosts may live on there and hold them open. What was
    /// printed before is still read; `rounds`: for so long if others go on to print.
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
