// SPDX-License-Identifier: Apache-2.0
/// @file
/// The driver: a program started alone launches `mpirun` on itself, watches the ranks, and starts
/// them again when they fail, as FailureConfig allows.
///
/// The launch/ room's layers: a Job is one start of the ranks, watched (launch/supervise/job.hpp);
/// FailurePolicy decides what follows on its end (launch/supervise/failure_policy.hpp); the driver
/// does it.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/launch/ending.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/launch/supervise/failure_policy.hpp>
#include <rtrain/launch/supervise/hosts.hpp>
#include <rtrain/launch/supervise/job.hpp>
#include <rtrain/process/descriptor_limit.hpp>
#include <rtrain/process/preemption_signals.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rtrain::launch {

class Driver {
public:
    Driver(int fit, const Config& config, const ScalingConfig& scaling, const RunConfig& run)
        : fit_(fit), config_(config), scaling_(scaling), run_(run), policy_(run.failure),
          signals_(io_, SIGINT, SIGTERM, SIGCHLD), timer_(io_), resize_timer_(io_) {
        signals_.add(SIGUSR1);
        if (!is_ignored(SIGHUP)) { // as nohup has it
            signals_.add(SIGHUP);
        }
    }
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    /// Returns how the call ended. A signal that is to end this program ends it. Throws
    /// std::bad_alloc; then the destructor ends the ranks.
    Ending run() {
        listen();
        const NoticeWatch notices(run_.failure.preemption_notice,
                                  [this] { boost::asio::post(io_, [this] { make_room(); }); });
        start();
        io_.run();
        if (probe_.joinable()) {
            probe_.join();
        }
        Session::current().remove_directories(); // a signal may end this program at any time now
        if (fatal_signal_) {
            ::signal(*fatal_signal_, SIG_DFL);
            ::raise(*fatal_signal_);
        }
        Session::current().record(fit_, *ending_);
        return *ending_;
    }

private:
    using Clock = std::chrono::steady_clock;

    static bool is_ignored(int signal) {
        struct sigaction now {};
        return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
    }

    static Clock::duration in_seconds(double seconds) {
        return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    }

    void start() {
        try {
            start_job();
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception& error) {
            const Ending ending = Ending::of(error);
            if (attempt_ == 0 || !ending.has_code("RT-L13") ||
                !wait_for_hosts(ending.failure->message)) {
                finish(ending);
            }
        }
    }

    /// A lost host may come back. It has as long as ranks have for a start; false when that is
    /// over.
    [[nodiscard]] bool wait_for_hosts(const std::string& why) {
        const double limit_s = run_.failure.hang.start_s;
        if (!hosts_until_) {
            std::fprintf(stderr, "rtrain: %s; waiting for up to %g s\n", why.c_str(), limit_s);
            hosts_until_ = Clock::now() + in_seconds(limit_s);
        }
        constexpr double pause_s = 1;
        if (Clock::now() > *hosts_until_) {
            return false;
        }
        start_in(pause_s);
        return true;
    }

    void start_in(double delay_s) {
        timer_.expires_after(in_seconds(delay_s));
        timer_.async_wait([this](const boost::system::error_code& error) {
            if (!error) {
                start();
            }
        });
    }

    void start_job() {
        Session& session = Session::current();
        session.forget(fit_);
        session.leave_config(fit_, config_);
        const Placement place = place_ranks(scaling_);
        hosts_until_.reset();
        require_descriptors(
            descriptors_for_launch(place.ranks, place.remote ? 0 : place.ranks, open_descriptors()),
            detail::concat("starting ", place.ranks, " ranks"));
        const std::string directory = session.directory().string();
        ++attempt_;
        std::string skipped;
        for (const std::string& name : skip_) {
            skipped += (skipped.empty() ? "" : ",") + name;
        }
        MpirunCommand command{.ranks = place.ranks,
                              .arguments = place.arguments,
                              .variables = {{Session::directory_variable, directory},
                                            {Session::fit_variable, std::to_string(fit_)},
                                            {Session::name_variable, run_.name},
                                            {Session::skip_variable, skipped}}};
        auto input = session.rank_variables(place.remote);
        command.keeps_input = !input.empty();
        command.variables.merge(input);
        if (!place.remote) {
            command.scratch = session.directory();
            command.shared_memory = session.shared_memory();
        }
        const int keep_at_least = ranks_to_keep(place.ranks);
        command.survive_deaths = keep_at_least > 0;
        decided_to_end_ = false;
        job_ = std::make_unique<Job>(
            io_, std::move(command),
            ControlServer::Options{.attempt = attempt_,
                                   .size = place.ranks,
                                   .directory = session.directory(),
                                   .remote = place.remote},
            run_.failure.hang,
            Job::Handlers{.over = [this](JobEnd end) { over(std::move(end)); },
                          .ended = [this] { boost::asio::post(io_, [this] { tidy_up(); }); },
                          .saved =
                              [this](const std::string& checkpoint, std::int64_t iteration) {
                                  deaths_unexplained_ = 0;
                                  policy_.on_progress(checkpoint, iteration);
                              },
                          .decide =
                              [this](const Failure& failure, const std::string& checkpoint) {
                                  return decide(failure, checkpoint);
                              },
                          .in_a_hurry = [this] { return restarts_without_question(); },
                          .shrunk = [this](int ranks) { look_for_room(ranks); }},
            keep_at_least);
        resizing_ = false;
        look_for_room(place.ranks);
    }

    /// See Job::Job(). Says once why it is not what the user wants.
    [[nodiscard]] int ranks_to_keep(int ranks) {
        if (!run_.failure.keep_survivors) {
            return 0;
        }
        const int least = scaling_.num_workers.min();
        const std::optional<int> version = open_mpi_version();
        constexpr int first_with_ulfm = 5;
        const bool has_ulfm = version && *version >= first_with_ulfm;
        if (least < ranks && has_ulfm) {
            return least;
        }
        if (attempt_ == 1) {
            std::fprintf(stderr, "rtrain: keep_survivors has no effect: %s\n",
                         has_ulfm ? "num_workers allows no fewer ranks"
                                  : "the mpirun on PATH is not of Open MPI 5");
        }
        return 0;
    }

    /// A first death is no riddle that is worth a second of everybody's time.
    [[nodiscard]] bool restarts_without_question() {
        return run_.failure.max_failures != 0 && deaths_unexplained_++ == 0;
    }

    Decision decide(const Failure& failure, const std::string& checkpoint) {
        Decision decision = policy_.on_failure(failure, checkpoint);
        decided_to_end_ = !decision.restart;
        skip_ = decision.skip;
        return decision;
    }

    /// The ranks are gone. What follows destroys the job, so not from within it.
    void over(JobEnd end) {
        resize_timer_.cancel();
        boost::asio::post(io_, [this, end = std::move(end)] { conclude(end); });
    }

    void conclude(const JobEnd& end) {
        const auto recorded = Session::current().recorded(fit_);
        if (fatal_signal_) {
            finish(Ending::of(LaunchError("RT-L2", "the driver was told to end")));
            return;
        }
        if (recorded && !recorded->failure) {
            finish(*recorded);
            return;
        }
        if (asked_to_make_room_) {
            const bool hung = end.failure && end.failure->kind == Failure::Kind::hang;
            finish(
                recorded && recorded->has_code(preempted)
                    ? *recorded
                    : Ending::of(PreemptionError(detail::concat(
                          "the run was told to make room and ",
                          hung ? "could not save: " + end.failure->message : "had no time to save",
                          "; start the same command again to go on from the newest "
                          "checkpoint"))));
            return;
        }
        if (recorded && recorded->has_code(preempted) && resizing_) {
            restart(0, "there is room for more ranks");
            return;
        }
        const Ending ending = ending_of(end, recorded);
        const Failure& failure = *ending.failure;
        const Decision decision = decided_to_end_ ? Decision{} // the ranks have asked already
                                                  : decide(failure, end.checkpoint);
        if (decision.restart) {
            restart(decision.delay_s, failure.message + "\nrtrain: " + decision.reason);
        } else {
            finish(ending);
        }
    }

    /// What a job's end and what its ranks have recorded, which is no success, say together.
    [[nodiscard]] Ending ending_of(const JobEnd& end, const std::optional<Ending>& recorded) const {
        using Kind = Failure::Kind;
        if (!recorded) {
            return {.failure = end.failure.value_or(Failure{
                        .kind = Kind::configuration,
                        .code = "RT-L3",
                        .message = detail::concat("the ranks ended without reaching fit() call "
                                                  "number ",
                                                  fit_ + 1,
                                                  " of this program; main() must make the same "
                                                  "calls in every process")})};
        }
        Ending ending = *recorded;
        Failure& failure = *ending.failure;
        // Ranks may notice that another has died, also while they join, or that the driver has
        // given them up; the driver knows better why.
        if (failure.kind == Kind::interrupted || failure.code == "RT-L8" ||
            (end.failure && end.failure->kind == Kind::hang) || recorded->tells_of_deaths()) {
            if (end.failure) {
                return {.failure = end.failure};
            }
            failure.kind = Kind::start_up;
        } else if (failure.code != preempted && failure.code != "RT-T1" &&
                   failure.code != "RT-L2") {
            failure.kind = Kind::configuration;
        }
        return ending;
    }

    void restart(double delay_s, const std::string& why) {
        std::fprintf(stderr, "rtrain: %s\n", why.c_str());
        retire_job();
        start_in(delay_s);
    }

    /// Its mpirun may still be tidying up.
    void retire_job() {
        if (job_ && !job_->ended()) {
            retired_.push_back(std::move(job_));
        }
        job_.reset();
    }

    void finish(Ending ending) {
        ending_ = std::move(ending);
        timer_.cancel();
        retire_job();
        tidy_up();
        constexpr std::chrono::seconds patience{5};
        timer_.expires_after(patience);
        timer_.async_wait([this](const boost::system::error_code& error) {
            if (!error) {
                for (const auto& job : retired_) {
                    job->kill_mpirun();
                }
            }
        });
    }

    void listen() {
        signals_.async_wait([this](const boost::system::error_code& error, int signal) {
            if (error) {
                return;
            }
            if (signal == SIGCHLD) {
                reap();
            } else if (signal == SIGINT || signal == SIGHUP || !may_make_room()) {
                end_at_once(signal);
            } else {
                make_room();
            }
            if (!io_.stopped()) {
                listen();
            }
        });
    }

    void reap() {
        if (job_) {
            job_->reap();
        }
        for (const auto& job : retired_) {
            job->reap();
        }
    }

    void tidy_up() {
        retired_.remove_if([](const auto& job) { return job->ended(); });
        if (ending_ && retired_.empty()) {
            io_.stop();
        }
    }

    /// A job manager may send the same signal twice.
    [[nodiscard]] bool may_make_room() const {
        constexpr std::chrono::seconds echo{1};
        return !asked_to_make_room_ || Clock::now() - *asked_to_make_room_ < echo;
    }

    /// The run is to save and end.
    void make_room() {
        if (asked_to_make_room_) {
            return;
        }
        asked_to_make_room_ = Clock::now();
        const double grace_s = run_.failure.preemption_grace_s;
        std::fprintf(stderr, "rtrain: told to make room: saving, for %g s at most\n", grace_s);
        timer_.cancel(); // a restart that is due
        if (!job_) {
            conclude({});
            return;
        }
        job_->preempt(grace_s);
        timer_.expires_after(in_seconds(grace_s));
        timer_.async_wait([this](const boost::system::error_code& error) {
            if (!error && job_) {
                job_->kill({.kind = Failure::Kind::preemption,
                            .code = preempted,
                            .message = "no time was left to save"});
            }
        });
    }

    void end_at_once(int signal) {
        fatal_signal_ = signal;
        if (job_) {
            job_->kill({.kind = Failure::Kind::configuration,
                        .code = "RT-L2",
                        .message = "the driver was told to end"});
        } else {
            conclude({});
        }
    }

    /// A run with fewer ranks than it may have looks now and then whether there is room for more.
    void look_for_room(int ranks) {
        if (!scaling_.num_workers.is_elastic() || ranks >= scaling_.num_workers.max()) {
            return;
        }
        resize_timer_.expires_after(in_seconds(scaling_.elastic_resize_monitor_interval_s));
        resize_timer_.async_wait([this, ranks](const boost::system::error_code& error) {
            if (error || !job_ || asked_to_make_room_) {
                return;
            }
            probe_ = std::jthread([this, ranks] { // hosts may take seconds to answer
                const bool more = has_room_for_more_than(ranks);
                boost::asio::post(io_, [this, ranks, more] {
                    if (more && job_ && !asked_to_make_room_) {
                        resizing_ = true;
                        job_->preempt(run_.failure.preemption_grace_s);
                    } else {
                        look_for_room(ranks);
                    }
                });
            });
        });
    }

    [[nodiscard]] bool has_room_for_more_than(int ranks) const {
        try {
            return find_room(scaling_).ranks > ranks;
        } catch (const LaunchError& error) { // a hostfile that is being written, perhaps
            std::fprintf(stderr, "rtrain: cannot look for room: %s\n", error.what());
            return false;
        }
    }

    static constexpr const char* preempted = PreemptionError::own_code;
    int fit_;
    const Config& config_;
    const ScalingConfig& scaling_;
    const RunConfig& run_;
    FailurePolicy policy_;
    std::vector<std::string> skip_; ///< checkpoints not to go on from
    int attempt_ = 0;
    int deaths_unexplained_ = 0; ///< since there was progress
    bool decided_to_end_ = false;
    bool resizing_ = false;
    std::optional<Clock::time_point> hosts_until_; ///< while there is too little room for a start
    std::optional<Clock::time_point> asked_to_make_room_;
    std::optional<int> fatal_signal_;
    std::optional<Ending> ending_;
    boost::asio::io_context io_;
    boost::asio::signal_set signals_;
    boost::asio::steady_timer timer_; ///< of a restart, of the grace time, of the end
    boost::asio::steady_timer resize_timer_;
    std::unique_ptr<Job> job_;
    std::list<std::unique_ptr<Job>> retired_; ///< whose mpirun has not ended
    std::jthread probe_;                      ///< looks for room; ends before what it uses
};

/// Launches the ranks for call number `fit` and returns how they ended; after a failure, as often
/// as `run.failure` allows, launches them again. `config` must be theirs, too. Throws
/// std::bad_alloc when no rank lives any more.
[[nodiscard]] inline Ending drive(int fit, const Config& config, const ScalingConfig& scaling,
                                  const RunConfig& run) {
    return Driver(fit, config, scaling, run).run();
}

} // namespace rtrain::launch
