// SPDX-License-Identifier: Apache-2.0
/// @file
/// Training: one fit() call on one rank. Calls the training function, and calls it again in the
/// same process after a failure if all processes are alive and FailureConfig allows it.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/failure_json.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/duration.hpp>
#include <rtrain/checkpoint/policy/any_policy.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/observers.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/launch/control/event_text.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/launch/supervise/failure_policy.hpp>
#include <rtrain/launch/watch/peer_watchdog.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/preemption/preemption_signals.hpp>
#include <rtrain/process/status/attempt_status.hpp>
#include <rtrain/process/status/rank_status.hpp>
#include <rtrain/process/status/user_call.hpp>
#include <rtrain/run/make_way.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/run/run.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/run/same_config.hpp>
#include <rtrain/train/attempt.hpp>
#include <rtrain/train/default_observers.hpp>
#include <rtrain/train/generators.hpp>
#include <rtrain/train/outcomes.hpp>
#include <rtrain/train/own_log.hpp>
#include <rtrain/train/preemption.hpp>
#include <rtrain/train/train_function.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rtrain::detail {

class Training {
public:
    /// `end_process`: takes what fit() would throw, for a function that does not end. Does not
    /// return.
    Training(FitSetup fit, std::function<void(const Error&)> end_process)
        : fit_(std::move(fit)), backend_(fit_.backend), options_(fit_.options),
          session_(fit_.call.session), context_(fit_.call.context),
          end_process_(std::move(end_process)), policy_(options_.run.failure) {
        report_ = add_recorders(observers_, options_, session_);
    }

    /// Adds an observer, notified after rtrain's own; call before run().
    void observe(std::shared_ptr<track::Observer> observer) { observers_.add(std::move(observer)); }

    /// Throws what Trainer::fit() throws.
    Result run(const RunFunction& train_function) {
        try {
            return train(train_function);
        } catch (const std::exception& error) {
            observers_.ended(
                {.how = track::Ended::How::failed, .message = failure_of(error).message});
            throw;
        }
    }

    /// True if the function was called again in these processes.
    [[nodiscard]] bool has_restarted() const noexcept { return restarted_; }

private:
    Result train(const RunFunction& train_function) {
        context_.status.enter(Phase::starting);
        std::optional<UserCall::In> starting(std::in_place, UserCall::start);
        if (options_.scaling.use_gpu && !backend_.device()) {
            throw ConfigError("RT-C5", "use_gpu is set, but this backend trains on CPUs");
        }
        if (!fit_.call.follows) {
            backend_.start(options_.scaling);
        }
        if (!session_.has_driver()) { // otherwise the driver did it
            succeed_together(backend_, [this] {
                if (backend_.rank() == 0) {
                    make_way(options_.run, fit_.run_name);
                }
            });
        }
        std::optional<OwnLog> log(std::in_place, backend_, options_.run, fit_.run_name,
                                  session_.has_driver());
        log_ = &log;
        session_.connect(backend_.rank(), backend_.size());
        watch_each_other();
        require_same_config(backend_, options_.config,
                            fit_.call.follows ? std::nullopt
                                              : session_.driver_config(fit_.call.number));
        skipped_ = fit_.call.follows ? std::vector<std::string>() : session_.skipped_checkpoints();
        add_viewers(observers_, fit_, *report_);
        check_survival();
        const double grace_s = options_.run.failure.preemption_grace_s;
        const launch::PreemptionSignals signals(context_.notice, grace_s);
        const launch::PreemptionPoller notices(
            asks_for_notices() ? options_.run.failure.preemption_notice : nullptr,
            [this, grace_s] { context_.notice.give(grace_s); });
        // Starts an attempt with the same generators as a new process.
        Generators generators;
        starting.reset();
        for (;;) {
            log->begin();
            (void)context_.clock.take(); // steps before the run, or of an attempt that failed
            Attempt attempt = attempt_once(train_function);
            if (attempt.refused) {
                std::rethrow_exception(attempt.refused);
            }
            if (!attempt.error) {
                context_.status.enter(Phase::done);
                if (attempt.preempted) {
                    throw acknowledge_preemption(attempt, options_.run, context_.notice);
                }
                return std::move(attempt.result);
            }
            if (!try_restart_here(attempt)) {
                throw *attempt.error;
            }
            restarted_ = true;
            generators.restore();
            context_.status.enter(Phase::starting);
        }
    }

    /// Ranks started by mpirun or srun have no driver to detect a hang.
    void watch_each_other() {
        if (backend_.can_be_launched() && !session_.has_driver()) {
            watch_.reset();
            watch_.emplace(backend_.rank(), backend_.size(), options_.run.failure.hang,
                           [this](const std::string& mine) { return all_gather(backend_, mine); });
        }
    }

    Attempt attempt_once(const RunFunction& train_function) {
        Attempt attempt;
        std::unique_ptr<Run> run;
        Outcome mine = failure_in([&] {
            const UserCall::In in(UserCall::start);
            try {
                run = std::make_unique<Run>(fit_, observers_, skipped_);
            } catch (const PeerError&) {
                throw; // another rank has the cause
            } catch (...) {
                attempt.refused = std::current_exception();
                throw;
            }
        });
        if (run) {
            attempt.began = name_of(run->checkpoint());
            AttemptStatus& status = context_.attempt;
            status.set_last_words([&](const std::exception& error) { session_.last_words(error); });
            status.begin([&] { end_in_function(attempt, *run); });
            mine = failure_in([&] {
                attempt.preempted = !run_until_preempted(train_function, *run);
                end_run(attempt, *run);
            });
            status.end();
            if (const auto first = status.failure();
                first && mine && mine->kind == Failure::Kind::interrupted) {
                mine = first; // this rank's cause; others were only interrupted
            }
        }
        conclude(attempt, run.get(), std::move(mine));
        return attempt;
    }

    /// Collective end of an attempt. `run`: null if it could not be opened.
    void conclude(Attempt& attempt, Run* run, Outcome mine) {
        attempt.error = error_of(exchange(std::move(mine)));
        if (run == nullptr) {
            return;
        }
        attempt.newest = name_of(run->checkpoint());
        attempt.iteration = run->journal().iterations_saved();
        if (attempt.error) {
            leave_error(run->directory(), *attempt.error);
            if (attempt.error->died().empty() ||
                !session_.has_driver()) { // else the driver reports it
                observers_.failed({.failures = attempt.error->worker_failures()});
            }
        } else {
            using How = track::Ended::How;
            observers_.ended({.how = attempt.preempted ? How::preempted : How::finished,
                              .result = attempt.preempted ? nullptr : &attempt.result});
        }
    }

    /// Called inside a training function that does not return although its state is saved: ends
    /// this process as if it had returned.
    void end_in_function(Attempt& attempt, Run& run) {
        attempt.preempted = true;
        conclude(attempt, &run, failure_in([&] { end_run(attempt, run); }));
        context_.status.enter(Phase::done);
        console::warn("rank %d: the training function caught the exception that ends it, twice; "
                      "its process exits now; let exceptions not derived from std::exception "
                      "through: write catch (const std::exception&) instead of catch (...)",
                      backend_.rank());
        log_->reset();
        attempt.error
            ? end_process_(*attempt.error)
            : end_process_(acknowledge_preemption(attempt, options_.run, context_.notice));
    }

    /// Exchanges the outcomes of all ranks.
    [[nodiscard]] std::vector<Outcome> exchange(Outcome mine) {
        const RankStatus::In finishing(context_.status, Phase::finishing);
        if (auto outcomes = backend_.finish(mine)) {
            return std::move(*outcomes);
        }
        if (!mine) {
            backend_.barrier();
        }
        std::vector<Outcome> outcomes(static_cast<std::size_t>(backend_.size()));
        outcomes[static_cast<std::size_t>(backend_.rank())] = std::move(mine);
        return outcomes;
    }

    void leave_error(const RunDirectory& directory, const TrainingFailedError& error) const {
        if (backend_.rank() != 0 && !error.worker_failures().contains(backend_.rank())) {
            return;
        }
        try {
            directory.write(track::error_file, json::serialize({{"code", error.code()},
                                                                {"message", error.message()}}));
            if (backend_.rank() == 0) {
                directory.publish_logs();
            }
        } catch (const std::exception& second) { // the storage itself may have failed
            console::warn("%s was not written: %s", track::error_file, second.what());
        }
    }

    /// Warns if keep_survivors has no effect. With a driver, the driver warns.
    void check_survival() const {
        if (options_.run.failure.keep_survivors && !keeps_survivors() && backend_.rank() == 0 &&
            !session_.has_driver()) {
            console::warn("keep_survivors has no effect: it requires a backend and an MPI with "
                          "ULFM, such as `mpirun --with-ft ulfm` of Open MPI 5");
        }
    }

    /// True if ranks continue without dead ones.
    [[nodiscard]] bool keeps_survivors() const {
        return options_.run.failure.keep_survivors && backend_.survives_deaths();
    }

    /// Decides whether to call the function again; the driver decides, or rank 0 without one, and
    /// all ranks get the same result. Rejoins the ranks: all, or the survivors.
    bool try_restart_here(const Attempt& attempt) {
        if (!backend_.can_rejoin()) {
            return false;
        }
        if (keeps_survivors()) {
            return try_restart_with_survivors(attempt);
        }
        if (!attempt.error->died().empty()) {
            return false;
        }
        try {
            (void)backend_.rejoin();
        } catch (const Error& error) { // for example, a GPU no longer works
            if (backend_.rank() == 0) {
                console::warn("no restart in these processes: %s", error.what());
            }
            return false;
        }
        return decide_restart(attempt, {});
    }

    /// Ranks may have seen different events: one may have died after reporting that it failed.
    bool try_restart_with_survivors(const Attempt& attempt) {
        try {
            const int before = backend_.size();
            const std::vector<int> lost = backend_.rejoin();
            const int now = backend_.size();
            if (options_.scaling.num_workers.allows(now)) {
                watch_each_other(); // with their new ranks
                return decide_restart(attempt, lost);
            }
            if (backend_.rank() == 0) {
                console::warn("%d of %d ranks survive, fewer than num_workers allows", now, before);
            }
        } catch (const CommError& error) { // for example, another rank died meanwhile
            console::warn("the survivors cannot continue: %s", error.what());
        }
        return false;
    }

    /// `lost`: ranks that were removed.
    bool decide_restart(const Attempt& attempt, const std::vector<int>& lost) {
        boost::json::object decided;
        if (backend_.rank() == 0) {
            Failure failure = failure_of(*attempt.error);
            failure.from_outside = !lost.empty();
            if (std::ranges::any_of(attempt.error->failures(), [](const Failure& of_rank) {
                    return meets_each_start(of_rank.code);
                })) {
                failure.kind = Failure::Kind::configuration;
            }
            decided = {{"decision", launch::control::fields_of(decide(failure, attempt, lost))},
                       {"failure", to_json(failure)},
                       {"checkpoint", attempt.newest}};
        }
        decided = json::parse(broadcast(backend_, json::serialize(decided), 0)).as_object();
        const auto decision =
            launch::control::parse_event<launch::Decision>(decided.at("decision").as_object());
        if (backend_.rank() != 0) { // rank 0 may be the next to die
            (void)policy_.on_failure(failure_from(decided.at("failure").as_object()),
                                     std::string(decided.at("checkpoint").as_string()));
        }
        if (!decision.restart) {
            return false;
        }
        if (backend_.rank() == 0) {
            if (!lost.empty() && session_.has_driver()) { // which still owns these ranks
                observers_.failed({.failures = attempt.error->worker_failures()});
            }
            observers_.restarting({.failures = attempt.error->worker_failures(),
                                   .what = attempt.error->message(),
                                   .reason = decision.reason,
                                   .ranks = backend_.size(),
                                   .lost_ranks = !lost.empty()});
        }
        skipped_ = decision.skip;
        std::this_thread::sleep_for(duration_of(decision.delay_s));
        return true;
    }

    /// Call on rank 0.
    launch::Decision decide(const Failure& failure, const Attempt& attempt,
                            const std::vector<int>& lost) {
        if (session_.has_driver()) {
            return session_.ask_driver(failure, attempt.newest, lost);
        }
        if (attempt.newest != attempt.began) {
            policy_.on_progress(attempt.newest, attempt.iteration);
        }
        return policy_.on_failure(failure, attempt.newest);
    }

    [[nodiscard]] bool asks_for_notices() const {
        return backend_.rank() == 0 && !session_.has_driver();
    }

    FitSetup fit_;
    AnyBackend& backend_;
    const TrainerOptions& options_;
    launch::Session& session_;
    ProcessContext& context_;
    std::function<void(const Error&)> end_process_;
    std::optional<OwnLog>* log_ = nullptr; ///< of train()
    track::Observers observers_;           ///< notified by rank 0, for all attempts
    std::shared_ptr<track::RunReport> report_;
    launch::FailurePolicy policy_;     ///< used by rank 0 without a driver
    std::vector<std::string> skipped_; ///< checkpoints that the run must not resume from
    bool restarted_ = false;
    std::optional<launch::PeerWatchdog> watch_; ///< without a driver
};

} // namespace rtrain::detail
