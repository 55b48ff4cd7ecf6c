// SPDX-License-Identifier: Apache-2.0
/// @file
/// Job: one start of the ranks, watched from beginning to end. It learns what each rank does over
/// the control channel, ends ranks that others wait for in vain, and says how the job ended.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/failure_json.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/console/screen.hpp>
#include <rtrain/launch/control/bar_event.hpp>
#include <rtrain/launch/control/server.hpp>
#include <rtrain/launch/supervise/decision_json.hpp>
#include <rtrain/launch/supervise/failure_policy.hpp>
#include <rtrain/launch/supervise/job_end.hpp>
#include <rtrain/launch/supervise/job_ranks.hpp>
#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/launch/supervise/out_of_memory.hpp>
#include <rtrain/launch/supervise/started_ranks.hpp>
#include <rtrain/launch/watch/hang_finder.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/json/object.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::launch {

class Job {
public:
    using Clock = std::chrono::steady_clock;

    struct Handlers {
        /// The ranks are gone; called once. mpirun may still be tidying up.
        std::function<void(JobEnd)> over;
        /// mpirun has ended, too; called once, behind `over`.
        std::function<void()> ended;
        /// A checkpoint was committed, with so many reports in it.
        std::function<void(const std::string& checkpoint, std::int64_t iteration)> saved;
        /// Ranks have left a result that nobody finds on this machine.
        std::function<void(const std::string& result)> left_result;
        /// Decides on a failure that all ranks, or all but lost ones, have survived.
        std::function<Decision(const Failure&, const std::string& checkpoint)> decide;
        /// Whether a rank's death is enough to know. Else mpirun is waited for, which tells after a
        /// second what the rank has died of.
        std::function<bool()> in_a_hurry;
        /// So many ranks go on, as others have died.
        std::function<void(int ranks)> shrunk;
        /// A run has ended well, and another may follow in these ranks;
        std::function<void()> run_ended;
        /// which begins.
        std::function<void(const std::string& run)> run_begins;
    };

    /// How long those who survive a death may take until they ask what follows.
    static constexpr std::chrono::seconds survivors_limit{10};

    /// `keep_at_least`: when ranks die, so many that are left go on without them; 0: none do.
    Job(boost::asio::io_context& io, RanksCommand command, ControlServer::Options control,
        const HangConfig& hang, Handlers handlers, int keep_at_least = 0)
        : handlers_(std::move(handlers)), size_(command.ranks), keep_at_least_(keep_at_least),
          hang_(hang), ranks_(command.ranks), hangs_(hang, command.ranks,
                                                     [this] {
                                                         server_.send_all({"dump", {}});
                                                     }),
          timer_(io),
          server_(io, std::move(control),
                  {.joined = [this](const Hello& rank) { joined(rank); },
                   .status = [this](const RankReport& report) { hangs_.on_report(report); },
                   .event = [this](int rank, const Event& event) { heard(rank, event); },
                   .left =
                       [this](int rank) {
                           left(rank);
                           if (hear_until_ && ranks_.living() == 0) {
                               conclude();
                           }
                       },
                   .refused = [](const std::string& why) { console::warn("%s", why.c_str()); }}),
          started_(io, with_variables(std::move(command), server_.variables()),
                   [this] { launcher_ended(); }) {
        look_again();
    }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    /// To be called when a child process has ended.
    void reap() { started_.reap(); }

    /// Asks the ranks to save and end within that time, in seconds; ranks that join later, too.
    void preempt(double grace_s) {
        grace_s_ = grace_s;
        hangs_.hurry();
        server_.send_all({"preempt", {{"grace_s", grace_s}}});
    }

    /// Ends all ranks now. `why`: what has broken the job.
    void kill(Failure why) {
        if (over_) {
            return;
        }
        broken_ = std::move(why);
        if (!kill_ranks()) {
            started_.kill(SIGTERM); // reaches processes that we cannot
        }
        say_over_if_gone();
    }

    /// Ends the launcher, too, if it has not ended in time. See StartedRanks.
    void kill_launcher(bool with_output) { started_.kill_at_last(with_output); }

    /// See StartedRanks.
    [[nodiscard]] OutputRelay::Clock::duration quiet_for() const { return started_.quiet_for(); }

    /// The launcher has ended, too.
    [[nodiscard]] bool ended() const noexcept { return started_.ended(); }

private:
    static RanksCommand with_variables(RanksCommand command,
                                       std::map<std::string, std::string> variables) {
        command.variables.merge(variables);
        return command;
    }
    static Clock::time_point now() { return Clock::now(); }

    void joined(const Hello& hello) {
        ranks_.join(hello);
        hangs_.joined(hello);
        if (grace_s_) {
            server_.send(hello.rank, {"preempt", {{"grace_s", *grace_s_}}});
        }
    }

    void heard(int rank, const Event& event) {
        const auto text = [&](const char* field) {
            return std::string(event.body.at(field).as_string());
        };
        if (event.kind == "training") {
            trained_ = true;
            newest_ = text("checkpoint");
        } else if (event.kind == "saved") {
            newest_ = text("checkpoint");
            handlers_.saved(newest_, event.body.at("iteration").to_number<std::int64_t>());
        } else if (event.kind == "failed") {
            decide(rank, event.body);
        } else if (event.kind == "bar") {
            console::Screen::current().show(progress_from(event.body));
        } else if (event.kind == "shown") {
            console::Screen::current().take_off();
            console::Screen::current().print(text("text"));
        } else if (event.kind == "ending") {
            handlers_.left_result(text("text"));
        } else if (event.kind == "last_words") {
            ranks_.at(rank).last_words = failure_from(event.body);
        } else if (event.kind == "stack") {
            hangs_.on_stack(rank, text("text"));
        } else if (event.kind == "run_ended") {
            handlers_.run_ended();
        } else if (event.kind == "run_begins") {
            trained_ = false;
            newest_.clear();
            handlers_.run_begins(text("run"));
        } else if (event.kind == "done") {
            ranks_.at(rank).done = true;
        }
    }

    /// A rank asks on behalf of those that live.
    void decide(int rank, const boost::json::object& question) {
        Failure failure = failure_from(question);
        const auto& lost = question.at("lost").as_array();
        for (const auto& number : lost) {
            lose(number.to_number<int>());
        }
        failure.from_outside = failure.from_outside || !lost.empty();
        const Decision decision =
            handlers_.decide(failure, std::string(question.at("checkpoint").as_string()));
        server_.send(rank, {"decision", to_json(decision)});
        bereaved_.reset();
        if (!lost.empty() && decision.restart) {
            handlers_.shrunk(static_cast<int>(ranks_.living()));
        }
    }

    void lose(int rank) {
        if (ranks_.lose(rank)) {
            hangs_.set_gone(rank);
        }
    }

    /// Whether enough ranks are left, and are in the middle of training.
    [[nodiscard]] bool others_can_go_on() const {
        return keep_at_least_ > 0 && trained_ && ranks_.can_go_on() &&
               ranks_.living() >= keep_at_least_;
    }

    /// A rank whose process is gone before its time is waited for in vain, if the others cannot go
    /// on without it.
    void left(int rank) {
        JobRanks::Rank& gone = ranks_.at(rank);
        gone.connected = false;
        hangs_.left(rank);
        console::Screen::current().take_off(); // it comes back with the next word of who is rank 0
        if (bereaved_ && !broken_ && ranks_.living() == 0) { // they could not
            kill(bereaved_->why);
            return;
        }
        if (gone.done || gone.lost || broken_ || over_) {
            say_over_if_gone();
            return;
        }
        const Failure failure = failure_of(rank, gone.last_words);
        if (gone.last_words) {
            kill(failure);
        } else if (others_can_go_on()) {
            lose(rank);
            bereaved_ = {.why = failure, .until = now() + survivors_limit};
        } else if (handlers_.in_a_hurry()) {
            kill(failure);
        } else {
            died_without_a_word_ = failure;
            constexpr std::chrono::seconds patience{3}; // an exit with 0 says mpirun nothing
            kill_at_ = now() + patience;
        }
    }

    /// Whether all ranks were known, and on this machine.
    bool kill_ranks() {
        const bool all_here = ranks_.kill();
        server_.close();
        return all_here;
    }

    /// Of a rank that has left, with these last words or without any.
    [[nodiscard]] Failure failure_of(int rank, const std::optional<Failure>& last_words) const {
        Failure failure = failure_of_rank(rank, size_, last_words);
        if (!trained_) {
            failure.kind = Failure::Kind::start_up;
        }
        if (!last_words) {
            name_lack_of_memory(failure);
        }
        return failure;
    }

    /// What ranks have said last may still be on its way.
    void launcher_ended() {
        constexpr std::chrono::seconds patience{1};
        if (over_ || ranks_.living() == 0) {
            conclude();
        } else {
            hear_until_ = now() + patience;
        }
    }

    /// Nothing more will be heard.
    void conclude() {
        hear_until_.reset();
        if (!over_) {
            judge_exit();
            say_over();
        }
        handlers_.ended();
    }

    /// Whoever has started the ranks may know what nobody else has seen.
    void judge_exit() {
        if (!broken_ && started_.status() == 0) {
            broken_ = died_without_a_word_;
        } else if (!broken_) {
            const Death seen = started_.death();
            broken_ = failure_of_death(seen, trained_);
            if (seen.signal == SIGKILL) {
                name_lack_of_memory(*broken_);
            }
        }
    }

    /// What looks like any other SIGKILL. On another machine it cannot be told.
    void name_lack_of_memory(Failure& failure) const {
        if (memory_.has_killed()) {
            failure.code = "RT-L15";
            failure.message += "; meanwhile the kernel's out-of-memory killer has struck on this "
                               "machine";
        }
    }

    void say_over_if_gone() {
        if (broken_ && !over_ && ranks_.all_are_gone()) { // else look_again() comes back to it
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
        timer_.async_wait([this](const boost::system::error_code& error) {
            if (error || over_) {
                return;
            }
            end_useless_mpirun();
            hangs_.set_output_blocked(started_.is_output_blocked());
            if (broken_) {
                say_over_if_gone();
            } else if (hear_until_) {
                if (now() > *hear_until_) {
                    conclude();
                }
            } else if (died_without_a_word_) {
                if (now() > kill_at_) {
                    kill(*died_without_a_word_);
                }
            } else if (bereaved_) {
                if (now() > bereaved_->until) {
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
        });
    }

    /// Without ranks mpirun is of no use, once it has passed on what they printed; it may be
    /// stopped, or hang. Ranks that are done may then wait for it for ever.
    void end_useless_mpirun() {
        const bool gone = (broken_ || ranks_.all_joined()) && ranks_.all_have_left();
        const bool done = hang_.enabled && ranks_.all_are_done();
        constexpr double patience_s = 5;
        const double limit_s = gone ? patience_s : std::max(patience_s, hang_.idle_s);
        if (!gone && !done) {
            useless_since_.reset();
        } else if (!useless_since_) {
            useless_since_ = now();
        } else if (const std::chrono::duration<double> limit(limit_s);
                   now() - *useless_since_ > limit && started_.quiet_for() > limit) {
            (void)kill_ranks();
            started_.kill(SIGKILL);
        }
    }

    /// A rank has died, and the others have not said whether they go on.
    struct Bereaved {
        Failure why;
        Clock::time_point until;
    };

    Handlers handlers_;
    int size_;
    int keep_at_least_;
    HangConfig hang_;
    JobRanks ranks_;
    HangFinder hangs_;
    std::string newest_; ///< checkpoint
    bool trained_ = false;
    bool over_ = false;
    std::optional<Failure> broken_;
    std::optional<Failure> died_without_a_word_;  ///< until mpirun knows more
    std::optional<Clock::time_point> hear_until_; ///< ranks whose launcher has ended
    Clock::time_point kill_at_;
    std::optional<Bereaved> bereaved_;
    OutOfMemoryWatch memory_;
    std::optional<double> grace_s_;
    std::optional<Clock::time_point> useless_since_; ///< mpirun, without ranks
    boost::asio::steady_timer timer_;
    ControlServer server_;
    StartedRanks started_; ///< last: they find all else ready
};

} // namespace rtrain::launch
