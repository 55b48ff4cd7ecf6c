// SPDX-License-Identifier: Apache-2.0
/// @file
/// Supervisor: one run of a program on ranks, on the caller's io_context, with as many starts as
/// FailureConfig allows. A Job is one start, supervised (job.hpp); FailurePolicy decides what
/// follows its end (failure_policy.hpp); the supervisor executes that. Several may run
/// concurrently.
///
/// @code
/// boost::asio::io_context io;
/// Supervisor run(io, task, scaling, failure_config, [&](RunEnd end) { ...; io.stop(); });
/// run.start();
/// io.run();
/// @endcode
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/text/duration.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/launch/supervise/failure_policy.hpp>
#include <rtrain/launch/supervise/hosts.hpp>
#include <rtrain/launch/supervise/job.hpp>
#include <rtrain/launch/supervise/lifetime.hpp>
#include <rtrain/launch/supervise/program.hpp>
#include <rtrain/launch/supervise/room_watch.hpp>
#include <rtrain/launch/supervise/survivors.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::launch {

/// Lives in the thread that runs the io_context, which may outlive it.
class Supervisor {
public:
    using Clock = std::chrono::steady_clock;

    /// `over` is called once, after the last process has exited; never from within a member
    /// function.
    Supervisor(boost::asio::io_context& io, Task task, ScalingConfig scaling, FailureConfig failure,
               std::function<void(RunEnd)> over)
        : io_(io), task_(std::move(task)), scaling_(std::move(scaling)),
          config_(std::move(failure)), over_(std::move(over)), policy_(config_), timer_(io),
          room_(io, scaling_, [this] { return make_room_for_more(); }) {}
    Supervisor(const Supervisor&) = delete;
    Supervisor& operator=(const Supervisor&) = delete;

    /// Starts the run. Throws std::bad_alloc, as may all its handlers on the io_context; then the
    /// destructor kills the ranks.
    void start() {
        try {
            start_job();
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception& error) {
            const Failure failure = detail::failure_of(error);
            if (attempt_ == 0 || failure.code != "RT-L13" || !wait_for_hosts(failure.message)) {
                finish({.failure = failure});
            }
        }
    }

    /// Gives the ranks a call; Task::open_call must return it until it is answered.
    void call(const event::Call& call) {
        if (job_ && !end_) {
            job_->call(call);
        }
    }

    /// Preempts the run: it saves and ends.
    void make_room() {
        if (asked_to_make_room_ || end_) {
            return;
        }
        if (between_runs_) { // there is nothing to save
            end(task_.without_result);
            return;
        }
        asked_to_make_room_ = true;
        const double grace_s = std::min(config_.preemption_grace_s, detail::longest_duration_s);
        console::say("%spreempted: saving a checkpoint, at most %g s; a second signal ends the run "
                     "immediately, without saving",
                     named(task_.name).c_str(), grace_s);
        timer_.cancel(); // a restart that is due
        if (!job_) {
            conclude({});
            return;
        }
        job_->preempt(grace_s);
        wait(timer_, grace_s, [this] {
            if (job_) {
                job_->kill({.kind = Failure::Kind::preemption,
                            .code = PreemptionError::own_code,
                            .message = "no time was left to save"});
            }
        });
    }

    /// Ends the run now with this failure.
    void end(Failure why) {
        if (end_) { // it may still wait for output of the ranks
            for (const auto& job : retired_) {
                job->kill_launcher(true);
            }
            return;
        }
        told_to_end_ = why;
        if (job_) {
            job_->kill(std::move(why));
        } else {
            conclude({});
        }
    }

private:
    using Kind = Failure::Kind;

    /// Calls `action` from the io_context, if this object still exists.
    template <class F>
    void later(F action) {
        boost::asio::post(io_, lifetime_.guard(std::move(action)));
    }
    /// The same after `delay_s` seconds, unless the timer is reset or cancelled.
    template <class F>
    void wait(boost::asio::steady_timer& timer, double delay_s, F action) {
        timer.expires_after(detail::duration_of(delay_s));
        timer.async_wait(
            lifetime_.guard([action = std::move(action)](const boost::system::error_code& error) {
                if (!error) {
                    action();
                }
            }));
    }

    /// Waits for a lost host to return, for at most as long as a start of the ranks may take.
    /// Returns false when that time is over.
    [[nodiscard]] bool wait_for_hosts(const std::string& why) {
        const double limit_s = config_.hang.start_s;
        if (!hosts_until_) {
            console::warn("%s%s; waiting for up to %g s", named(task_.name).c_str(), why.c_str(),
                          limit_s);
            hosts_until_ = Clock::now() + detail::duration_of(limit_s);
        }
        constexpr double pause_s = 1;
        if (Clock::now() > *hosts_until_) {
            return false;
        }
        wait(timer_, pause_s, [this] { start(); });
        return true;
    }

    void start_job() {
        const Placement place = place_ranks(scaling_);
        hosts_until_.reset();
        require_room_for(place, /*first=*/attempt_ == 0);
        LaunchEnvironment given = task_.prepare(
            {.attempt = attempt_ + 1, .ranks = place.ranks, .remote = place.remote, .skip = skip_});
        ++attempt_;
        const auto directory = given.directory;
        RanksCommand command = command_for(task_, place, std::move(given));
        const int kept = ranks_to_keep(config_, scaling_.num_workers, place.ranks, attempt_ == 1);
        command.survive_deaths = kept > 0;
        decided_to_end_ = false;
        job_ = std::make_unique<Job>(io_, std::move(command),
                                     Job::Options{.control = {.attempt = attempt_,
                                                              .size = place.ranks,
                                                              .directory = directory,
                                                              .remote = place.remote,
                                                              .hosts = place.others},
                                                  .hang = config_.hang,
                                                  .keep_at_least = kept},
                                     handlers());
        resizing_ = false;
        room_.watch(place.ranks);
        if (const auto call = task_.open_call()) {
            job_->call(*call);
        }
    }

    /// The job's end is handled later, because that destroys the job.
    Job::Handlers handlers() {
        return {.over =
                    [this](JobEnd end) {
                        room_.stop();
                        later([this, end = std::move(end)] { conclude(end); });
                    },
                .ended = [this] { later([this] { tidy_up(); }); },
                .saved =
                    [this](const std::string& checkpoint, std::int64_t iteration) {
                        deaths_unexplained_ = 0;
                        policy_.on_progress(checkpoint, iteration);
                    },
                .left_result = [this](const std::string& result) { task_.keep_result(result); },
                .decide =
                    [this](const Failure& failure, const std::string& checkpoint) {
                        Decision decision = decide(failure, checkpoint);
                        if (decision.restart) {
                            task_.on_restart();
                        }
                        return decision;
                    },
                .in_a_hurry = [this] { return use_free_restart(); },
                .shrunk = [this](int ranks) { room_.watch(ranks); },
                .run_ended = [this] { between_runs_ = true; },
                .run_begins = [this](const std::string& run) { begin_run(run); },
                .answered = [this](const std::string& answer) { task_.answered(answer); },
                .answer = task_.answer};
    }

    /// Starts the next run in the same ranks; failures of the previous one no longer count.
    void begin_run(const std::string& run) {
        between_runs_ = false;
        policy_ = FailurePolicy(config_);
        skip_.clear();
        deaths_unexplained_ = 0;
        task_.on_run(run);
    }

    /// True for the first death, which is not worth waiting a second for its cause.
    [[nodiscard]] bool use_free_restart() {
        return config_.max_failures != 0 && deaths_unexplained_++ == 0;
    }

    Decision decide(const Failure& failure, const std::string& checkpoint) {
        Decision decision = policy_.on_failure(failure, checkpoint);
        decided_to_end_ = !decision.restart;
        skip_ = decision.skip;
        return decision;
    }

    /// The ranks have exited.
    void conclude(const JobEnd& end) {
        const std::optional<std::string> result = task_.result();
        const std::optional<Failure> told = result ? task_.failure_in(*result) : std::nullopt;
        const bool has_saved = told && told->kind == Kind::preemption;
        if (told_to_end_) {
            finish({.failure = told_to_end_});
        } else if (result && !told) {
            finish({.result = result});
        } else if (asked_to_make_room_ && has_saved) {
            finish({.failure = told, .result = result});
        } else if (asked_to_make_room_) {
            finish({.failure = end.without_a_save()});
        } else if (has_saved && resizing_) {
            restart(0, "there is room for more ranks");
        } else {
            go_on_or_finish(end, end.with(told, result, task_.without_result));
        }
    }

    void go_on_or_finish(const JobEnd& end, const RunEnd& otherwise) {
        if (between_runs_) { // no run has failed
            finish(otherwise);
            return;
        }
        const Failure& failure = *otherwise.failure;
        task_.on_failure(failure);
        const Decision decision = decided_to_end_ || !task_.may_restart()
                                      ? Decision{} // the ranks have already asked
                                      : decide(failure, end.checkpoint);
        if (decision.restart) {
            restart(decision.delay_s, failure.message + "\nrtrain: " + decision.reason);
        } else {
            finish(otherwise);
        }
    }

    void restart(double delay_s, const std::string& why) {
        console::warn("%s%s", named(task_.name).c_str(), why.c_str());
        retire_job();
        wait(timer_, delay_s, [this] { start(); });
    }

    /// Its mpirun may still be cleaning up.
    void retire_job() {
        if (job_ && !job_->ended()) {
            retired_.push_back(std::move(job_));
        }
        job_.reset();
    }

    void finish(RunEnd end) {
        end_ = std::move(end);
        timer_.cancel();
        room_.stop();
        retire_job();
        kill_launchers_later();
        tidy_up();
    }

    /// Not while they forward output of the ranks, unless the run is to end now.
    void kill_launchers_later() {
        constexpr std::chrono::seconds patience{5};
        wait(timer_, static_cast<double>(patience.count()), [this, patience] {
            for (const auto& job : retired_) {
                if (told_to_end_ || job->quiet_for() >= patience) {
                    job->kill_launcher(told_to_end_.has_value());
                }
            }
            kill_launchers_later(); // until tidy_up()
        });
    }

    void tidy_up() {
        retired_.remove_if([](const auto& job) { return job->ended(); });
        if (end_ && retired_.empty() && over_) {
            timer_.cancel();
            later([over = std::exchange(over_, nullptr), end = *end_] { over(end); });
        }
    }

    /// More ranks fit: saves and restarts the run with them, unless it is about to end anyway.
    [[nodiscard]] bool make_room_for_more() {
        if (!job_ || asked_to_make_room_ || between_runs_) {
            return false;
        }
        resizing_ = true;
        job_->preempt(config_.preemption_grace_s);
        return true;
    }

    boost::asio::io_context& io_;
    Task task_;
    ScalingConfig scaling_;
    FailureConfig config_;
    std::function<void(RunEnd)> over_; ///< until it is called
    FailurePolicy policy_;
    std::vector<std::string> skip_; ///< checkpoints not to resume from
    int attempt_ = 0;
    int deaths_unexplained_ = 0; ///< since the last progress
    bool decided_to_end_ = false;
    bool between_runs_ = false;
    bool resizing_ = false;
    bool asked_to_make_room_ = false;
    std::optional<Clock::time_point> hosts_until_; ///< while too few slots are free for a start
    std::optional<Failure> told_to_end_;
    std::optional<RunEnd> end_;
    boost::asio::steady_timer timer_; ///< for a restart, the grace time, the end
    RoomWatch room_;
    std::unique_ptr<Job> job_;
    std::list<std::unique_ptr<Job>> retired_; ///< jobs whose mpirun has not exited
    Lifetime lifetime_;
};

} // namespace rtrain::launch
