// SPDX-License-Identifier: Apache-2.0
/// @file
/// Job: one start of the ranks, supervised from start to end. It follows each rank over the control
/// channel, kills ranks that wait for dead ones, and reports how the job ended.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/overloaded.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/console/screen.hpp>
#include <rtrain/launch/control/events.hpp>
#include <rtrain/launch/control/server.hpp>
#include <rtrain/launch/supervise/failure_policy.hpp>
#include <rtrain/launch/supervise/job_end.hpp>
#include <rtrain/launch/supervise/job_handlers.hpp>
#include <rtrain/launch/supervise/job_ranks.hpp>
#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/launch/supervise/lifetime.hpp>
#include <rtrain/launch/supervise/out_of_memory.hpp>
#include <rtrain/launch/supervise/started_ranks.hpp>
#include <rtrain/launch/watch/hang_detector.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace rtrain::launch {

class Job {
public:
    using Clock = std::chrono::steady_clock;

    using Handlers = JobHandlers;

    /// Time limit for survivors of a death to ask for a decision.
    static constexpr std::chrono::seconds survivors_limit{10};

    struct Options {
        ControlServer::Options control;
        HangConfig hang;
        int keep_at_least = 0; ///< ranks that must survive a death to continue; 0: never
    };

    Job(boost::asio::io_context& io, RanksCommand command, Options options, Handlers handlers)
        : handlers_(std::move(handlers)), size_(command.ranks), options_(std::move(options)),
          ranks_(command.ranks),
          hangs_(options_.hang, command.ranks, [this] { server_.send_all(event::Dump{}); }),
          timer_(io),
          server_(io, options_.control,
                  {.joined = [this](const Hello& rank) { joined(rank); },
                   .status = [this](const RankReport& report) { hangs_.on_report(report); },
                   .event = [this](int rank, const RankEvent& event) { heard(rank, event); },
                   .left =
                       [this](int rank) {
                           left(rank);
                           if (hear_until_ && ranks_.living() == 0) {
                               conclude();
                           }
                       },
                   .refused = [](const std::string& why) { console::warn("%s", why.c_str()); }}),
          started_(io, with_variables(std::move(command), server_.variables()),
                   {.ended = [this] { launcher_ended(); },
                    .failed = [this](const RankExit& seen) { failed(seen); }}) {
        look_again();
    }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    /// Asks all ranks, also those that join later, to save and end within `grace_s` seconds.
    void preempt(double grace_s) {
        hangs_.hurry();
        server_.send_all_from_now_on(event::Preempt{grace_s});
    }

    /// Gives the ranks a call, also those that join later.
    void call(const event::Call& call) { server_.send_all_from_now_on(call); }

    /// Kills all ranks now. `why`: the failure that broke the job.
    void kill(Failure why) {
        if (over_) {
            return;
        }
        broken_ = std::move(why);
        if (!kill_ranks() || started_.are_ranks()) {
            started_.terminate();
        }
        say_over_if_gone();
        if (!over_) {
            look_again(); // soon
        }
    }

    /// Kills the launcher, too, if it has not exited in time. See StartedRanks.
    void kill_launcher(bool with_output) { started_.kill_at_last(with_output); }

    /// See StartedRanks.
    [[nodiscard]] OutputRelay::Clock::duration quiet_for() const { return started_.quiet_for(); }

    /// True once the launcher has exited, too.
    [[nodiscard]] bool ended() const noexcept { return started_.ended(); }

private:
    static RanksCommand with_variables(RanksCommand command,
                                       std::map<std::string, std::string> variables) {
        command.variables.merge(variables);
        return command;
    }

    void joined(const Hello& hello) {
        ranks_.join(hello);
        hangs_.joined(hello);
    }

    void heard(int rank, const RankEvent& received) {
        std::visit(
            detail::Overloaded{
                [&](const event::Training& now) {
                    trained_ = true;
                    newest_ = now.checkpoint;
                },
                [&](const event::Saved& now) { saved(now); },
                [&](const event::Failed& failed) { decide(rank, failed); },
                [&](const console::Progress& now) { console::Screen::current().show(now); },
                [&](const event::Shown& lines) {
                    console::Screen::current().take_off();
                    console::Screen::current().print(lines.text);
                },
                [&](const event::Ending& ending) {
                    handlers_.left_result(ending.text);
                    answer(rank, received);
                },
                [&](const event::LastWords& last) { ranks_.at(rank).last_words = last.failure; },
                [&](const event::Stack& stack) { hangs_.on_stack(rank, stack.text); },
                [&](const event::RunEnded&) { handlers_.run_ended(); },
                [&](const event::RunBegins& next) {
                    trained_ = false;
                    newest_.clear();
                    handlers_.run_begins(next.run);
                },
                [&](const event::Address& address) {
                    const auto all = ranks_.add(rank, address);
                    all ? server_.send_all(*all) : void();
                },
                [&](const event::Answer& answer) { handlers_.answered(answer.text); },
                [&](const event::Done&) { ranks_.at(rank).done = true; },
                [&](const event::Report&) { answer(rank, received); },
                [&](const event::Stored&) { answer(rank, received); },
                [&](const event::Meet&) { answer(rank, received); },
                [&](const event::Log&) { answer(rank, received); },
            },
            received);
    }

    void saved(const event::Saved& now) {
        newest_ = now.checkpoint;
        handlers_.saved(newest_, now.iteration);
    }

    void answer(int rank, const RankEvent& call) {
        const CallAnswers answers = handlers_.answer(rank, call);
        if (answers.saved) {
            saved(*answers.saved);
        }
        for (const auto& [to, event] : answers.events) {
            server_.send(to, event);
        }
    }

    /// A rank asks for a decision on behalf of all living ranks.
    void decide(int rank, const event::Failed& question) {
        Failure failure = question.failure;
        for (const int number : question.lost) {
            lose(number);
        }
        failure.from_outside = failure.from_outside || !question.lost.empty();
        const Decision decision = handlers_.decide(failure, question.checkpoint);
        server_.send(rank, decision);
        bereaved_.reset();
        if (!question.lost.empty() && decision.restart) {
            handlers_.shrunk(static_cast<int>(ranks_.living()));
        }
    }

    void lose(int rank) {
        if (ranks_.lose(rank)) {
            hangs_.set_gone(rank);
        }
    }

    /// True if enough ranks are left, and are in the middle of training.
    [[nodiscard]] bool others_can_go_on() const {
        return options_.keep_at_least > 0 && trained_ && ranks_.can_go_on() &&
               ranks_.living() >= options_.keep_at_least;
    }

    /// A rank has left. If its process ended early and the others cannot continue without it, the
    /// job fails.
    void left(int rank) {
        JobRanks::Rank& gone = ranks_.at(rank);
        gone.connected = false;
        hangs_.left(rank);
        console::Screen::current().take_off();               // rank 0's next event redraws it
        if (bereaved_ && !broken_ && ranks_.living() == 0) { // the survivors could not continue
            kill(bereaved_->why);
            return;
        }
        if (gone.done || gone.lost || broken_ || over_) {
            say_over_if_gone();
            return;
        }
        const Failure failure = failure_of(rank, gone.last_words);
        if (gone.last_words && failure.kind != Failure::Kind::interrupted) {
            kill(failure);
        } else if (others_can_go_on()) {
            lose(rank);
            bereaved_ = {.why = failure, .until = Clock::now() + survivors_limit};
        } else if (const auto seen = started_.exit_of(rank)) {
            kill(failure_of(*seen));
        } else if (!started_.are_ranks() && handlers_.in_a_hurry()) {
            kill(failure);
        } else {
            died_without_a_word_ = failure;
            constexpr std::chrono::seconds patience{3}; // mpirun does not report an exit with 0
            kill_at_ = Clock::now() + patience;
        }
    }

    /// The process of a rank has failed. If the rank reports to this job, left() handles it.
    void failed(const RankExit& seen) {
        if (!broken_ && !over_ && !ranks_.reports(seen.rank)) {
            kill(failure_of(seen));
        }
    }

    /// Returns true if all ranks had joined and run on this machine.
    bool kill_ranks() {
        const bool all_here = ranks_.kill();
        server_.close();
        return all_here;
    }

    /// The failure of a rank that has left, with its last words if it sent any.
    [[nodiscard]] Failure failure_of(int rank, const std::optional<Failure>& last_words) const {
        Failure failure = failure_of_rank(rank, size_, last_words);
        if (!trained_ && failure.kind != Failure::Kind::configuration) {
            failure.kind = Failure::Kind::start_up;
        }
        if (!last_words || last_words->kind == Failure::Kind::died) {
            name_lack_of_memory(failure, memory_);
        }
        return failure;
    }
    /// The same from the exit of its process.
    [[nodiscard]] Failure failure_of(const RankExit& seen) const {
        Failure failure = failure_of_death(seen, trained_);
        if (seen.signal == SIGKILL) {
            name_lack_of_memory(failure, memory_);
        }
        return failure;
    }

    /// The ranks' last messages may still be in flight.
    void launcher_ended() {
        constexpr std::chrono::seconds patience{1};
        if (over_ || ranks_.living() == 0) {
            conclude();
        } else {
            hear_until_ = Clock::now() + patience;
        }
    }

    /// No more messages will arrive.
    void conclude() {
        hear_until_.reset();
        if (!over_) {
            judge_exit();
            say_over();
        }
        handlers_.ended();
    }

    /// Derives the failure from the launcher's exit status; only it may reveal the cause.
    void judge_exit() {
        if (!broken_ && started_.status() == 0) {
            broken_ = died_without_a_word_;
        } else if (!broken_) {
            broken_ = failure_of(started_.death());
        }
    }

    void say_over_if_gone() {
        if (broken_ && !over_ && ranks_.all_are_gone()) { // otherwise look_again() retries
            say_over();
        }
    }

    void say_over() {
        over_ = true;
        timer_.cancel();
        handlers_.over({.failure = broken_, .checkpoint = newest_});
        if (hear_until_) {
            conclude();
        }
    }

    void look_again() {
        constexpr std::chrono::milliseconds often{10};
        constexpr std::chrono::milliseconds seldom{250};
        timer_.expires_after(broken_ || hear_until_ || hangs_.is_waiting() ? often : seldom);
        timer_.async_wait(lifetime_.guard([this](const boost::system::error_code& error) {
            if (error || over_) {
                return;
            }
            end_useless_mpirun();
            hangs_.set_output_blocked(started_.is_output_blocked());
            if (broken_) {
                say_over_if_gone();
            } else if (hear_until_) {
                if (Clock::now() > *hear_until_) {
                    conclude();
                }
            } else if (died_without_a_word_) {
                if (Clock::now() > kill_at_) {
                    kill(*died_without_a_word_);
                }
            } else if (bereaved_) {
                if (Clock::now() > bereaved_->until) {
                    kill(bereaved_->why);
                }
            } else if (const auto found = hangs_.look()) {
                kill({.kind = Failure::Kind::hang,
                      .code = "RT-L14",
                      .message = "the ranks hang: " + *found});
            }
            if (!over_) {
                look_again();
            }
        }));
    }

    /// Without ranks mpirun is useless once it has forwarded their output; it may be stopped, or
    /// hang. Ranks that are done may then wait for it forever.
    void end_useless_mpirun() {
        const bool gone = (broken_ || ranks_.all_joined()) && ranks_.all_have_left();
        const bool done = options_.hang.enabled && ranks_.all_are_done();
        constexpr double patience_s = 5;
        const double limit_s = gone ? patience_s : std::max(patience_s, options_.hang.idle_s);
        if (!gone && !done) {
            useless_since_.reset();
        } else if (!useless_since_) {
            useless_since_ = Clock::now();
        } else if (const std::chrono::duration<double> limit(limit_s);
                   Clock::now() - *useless_since_ > limit && started_.quiet_for() > limit) {
            (void)kill_ranks();
            started_.kill(SIGKILL);
        }
    }

    /// A rank has died, and the survivors have not yet asked for a decision.
    struct PendingSurvivors {
        Failure why;
        Clock::time_point until;
    };

    Handlers handlers_;
    int size_;
    Options options_;
    JobRanks ranks_;
    HangDetector hangs_;
    std::string newest_; ///< checkpoint
    bool trained_ = false;
    bool over_ = false;
    std::optional<Failure> broken_;
    std::optional<Failure> died_without_a_word_;  ///< until its launcher reports the cause
    std::optional<Clock::time_point> hear_until_; ///< deadline of the last messages
    Clock::time_point kill_at_;
    std::optional<PendingSurvivors> bereaved_;
    OutOfMemoryWatch memory_;
    std::optional<Clock::time_point> useless_since_; ///< when mpirun lost its last rank
    boost::asio::steady_timer timer_;
    ControlServer server_;
    Lifetime lifetime_;
    StartedRanks started_; ///< last: uses all members above
};

} // namespace rtrain::launch
