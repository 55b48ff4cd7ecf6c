// SPDX-License-Identifier: Apache-2.0
/// @file
/// Run: one training run in storage, as its ranks see it. Every member that accesses files is
/// collective and fails on all ranks or on none. RunJournal has what only rank 0 writes.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/policy/any_policy.hpp>
#include <rtrain/checkpoint/policy/host_copy.hpp>
#include <rtrain/checkpoint/store/interval.hpp>
#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/checkpoint/store/user_files.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/observers.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/run/copied_directory.hpp>
#include <rtrain/run/directory_merge.hpp>
#include <rtrain/run/kept_checkpoints.hpp>
#include <rtrain/run/options/fit_setup.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/run/options/report_options.hpp>
#include <rtrain/run/report_agreement.hpp>
#include <rtrain/run/reported_checkpoint.hpp>
#include <rtrain/run/resume.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/run/run_journal.hpp>
#include <rtrain/run/saver.hpp>
#include <rtrain/run/step_trace.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

class Run {
public:
    /// Collective: ranks communicate during the call.
    using TakeSnapshot = std::function<checkpoint::Snapshot()>;

    /// Creates the run's directory, or resumes the run in it from its newest intact checkpoint.
    /// Throws on all ranks: StorageError [RT-S1] cannot write to the directory, [RT-S2] ranks do
    /// not see the same directory, [RT-S7] another process trains in it, CheckpointError [RT-K1,
    /// RT-K2] there are checkpoints, but none is intact. `skip`: checkpoints not to resume from.
    /// Rank 0's `observers` receive the run's events.
    Run(const detail::FitSetup& fit, track::Observers& observers,
        const std::vector<std::string>& skip = {})
        : context_(fit.call.context), backend_(fit.backend), policy_(fit.policy),
          options_(fit.options), attempt_(detail::broadcast(backend_, detail::new_attempt(), 0)),
          directory_(
              detail::run_location(options_.run, detail::broadcast(backend_, fit.run_name, 0)),
              track::logs_of(options_.run)),
          store_(checkpoint::Staging(directory_.location(), attempt_, directory_.scratch(),
                                     options_.run.transfer),
                 options_.run.checkpoint),
          journal_(directory_, store_, options_, fit.call, observers),
          trace_(context_.clock, options_.run.profile.steps),
          saver_(backend_, store_, track::names_in_use(options_.run)) {
        if (const auto& mean = options_.run.checkpoint.mean_time_between_failures_s) {
            interval_.emplace(*mean);
        }
        on_rank_0([&] { directory_.take(attempt_); });
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() != 0) {
                directory_.require_shared(attempt_);
            }
        });
        on_rank_0([&] { journal_.require_same_run(); });
        context_.time_limit.reset();
        resume(skip);
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    /// Properties of the checkpoint policy.
    [[nodiscard]] bool saves_state() const { return policy_.saves_state(); }
    [[nodiscard]] bool takes_rows() const { return policy_.takes_rows(); }
    /// Returns what this rank would write of a state. Throws what the policy throws.
    [[nodiscard]] checkpoint::Snapshot select(checkpoint::Snapshot state) const {
        return policy_.select(std::move(state), {{}, backend_.rank(), backend_.size()});
    }

    [[nodiscard]] ProcessContext& context() const noexcept { return context_; }
    [[nodiscard]] const RunDirectory& directory() const noexcept { return directory_; }
    /// The newest checkpoint of this run, or the one it was started from.
    [[nodiscard]] const std::optional<Checkpoint>& checkpoint() const noexcept { return newest_; }

    /// True if this run saved the checkpoint, not a run that it was started from.
    [[nodiscard]] bool is_own(const Checkpoint& checkpoint) const {
        return checkpoint.path.parent_path() == directory_.location().path;
    }

    /// Rank 0's side; use on rank 0 only.
    [[nodiscard]] RunJournal& journal() noexcept { return journal_; }

    /// True if RunConfig::stop has stopped the run, as of the last report; the same on all ranks.
    [[nodiscard]] bool has_stopped() const noexcept { return stopped_; }
    /// True if a checkpoint includes the report that stopped the run.
    [[nodiscard]] bool stop_is_saved() const noexcept { return stop_is_saved_; }

    /// Call after the last report: checks whether the run's time limit has expired.
    void judge_time() { (void)agree(Kind::metrics, nullptr); }

    /// Records metrics.
    void report(const Config& metrics) {
        if (agree(Kind::metrics, &metrics).directory) {
            report_directory(metrics, nullptr, {}, {});
            return;
        }
        record(metrics);
    }

    /// Records metrics. Saves the state that `take_snapshot` returns, as the policy does, if it is
    /// due on rank 0 (`due` or the checkpoint interval), or the run stops or is preempted. Ranks
    /// agree before `take_snapshot` and `check`, so both may communicate. Always calls `check`,
    /// with true if Snapshot::compared is used.
    void report(const Config& metrics, const ReportOptions& options, bool due,
                const std::function<void(bool)>& check, const TakeSnapshot& take_snapshot) {
        const auto agreed = agree(Kind::state, &metrics, due || (interval_ && interval_->is_due()));
        const bool saves = agreed.due || agreed.stops || preempted();
        check(saves && policy_.writes_in_background() && !preempted());
        if (saves) {
            save_state(&metrics, options, take_snapshot);
        } else {
            record(metrics);
        }
    }

    /// Saves a state without a report, for a preempted run. The checkpoint has the metrics of the
    /// last report.
    void save(const TakeSnapshot& take_snapshot) {
        (void)agree(Kind::state, nullptr);
        save_state(nullptr, {}, take_snapshot);
    }

    /// True if the run is preempted, as of the last report.
    [[nodiscard]] bool preempted() const noexcept { return context_.notice.agreed(); }

    /// Records metrics, and makes a checkpoint from all ranks' directories, and `files`. Throws
    /// CheckpointError [RT-K5] if two directories have different files of the same name.
    void report(const Config& metrics, const Checkpoint* directory, const ReportOptions& options,
                checkpoint::FilesInMemory files = {}) {
        (void)agree(Kind::directory, &metrics);
        report_directory(metrics, directory, options, std::move(files));
    }

    /// Waits for a checkpoint that is being written in the background; rethrows its error.
    void finish() {
        CopiedDirectory source = std::exchange(source_, {}); // kept if this throws
        if (const auto name = saver_.finish()) {
            newest_ = store_.checkpoint(*name);
            source.remove();
        }
    }

    /// Returns the kept checkpoints, oldest first. Waits as `mode` says; at most `timeout_s`
    /// seconds for validations.
    [[nodiscard]] std::vector<ReportedCheckpoint>
    reported_checkpoints(ConsistencyMode mode, std::optional<double> timeout_s) {
        finish();
        return detail::kept_checkpoints(backend_, store_, [&] {
            if (mode == ConsistencyMode::validated) {
                journal_.wait_for_validations(timeout_s);
            }
        });
    }

    /// Ends the run, with everything in storage. Collective with validations, so that other ranks
    /// detect one that ends too early, and on a service.
    void close() {
        finish();
        end_journal(bool(options_.validation.function), [&] {
            journal_.wait_for_validations(std::nullopt);
            journal_.close(false);
        });
    }

    /// The same for a run that is to be resumed later; pending validations continue then.
    void leave() {
        finish();
        end_journal(false, [&] { journal_.close(true); });
    }

    [[nodiscard]] checkpoint::Snapshot load(const Checkpoint& from) {
        return detail::read_state(backend_, policy_, from);
    }

private:
    using Kind = detail::ReportKind;

    /// Calls `action` on rank 0 only; all ranks succeed or fail with it. *Collective.*
    template <class Action>
    void on_rank_0(Action&& action) {
        detail::succeed_together(backend_, [&] {
            if (backend_.rank() == 0) {
                action();
            }
        });
    }

    /// Calls `end` on rank 0. Other ranks read what it stores on a service, so they wait.
    template <class End>
    void end_journal(bool is_collective, End&& end) {
        if (is_collective || !directory_.is_local()) {
            on_rank_0(end);
        } else if (backend_.rank() == 0) {
            end();
        }
    }

    void resume(const std::vector<std::string>& skip) {
        newest_ = detail::newest_valid(backend_, store_, skip);
        const auto own = newest_ ? newest_->path.filename().string() : "";
        detail::succeed_together(backend_, [&] {
            if (own.empty() && options_.resume_from) {
                newest_ = options_.resume_from;
                checkpoint::verify(newest_->as_directory(), backend_.rank(), backend_.size());
            }
            if (backend_.rank() == 0) {
                journal_.open(own);
            }
        });
        const auto from = newest_ ? newest_->path.filename().string() : "";
        on_rank_0([&] { journal_.begin(from, attempt_); });
        if (!options_.run.stop.empty()) {
            const std::string word = journal_.has_stopped() ? "stopped" : "";
            stopped_ = stop_is_saved_ = !detail::broadcast(backend_, word, 0).empty();
        }
    }

    /// Ranks must report together and alike. `metrics`: of the report, or null without one.
    /// Rethrows background errors, and errors in rank 0's metrics.
    [[nodiscard]] detail::ReportAgreement agree(Kind mine, const Config* metrics,
                                                bool due = false) {
        context_.status.advance();
        PreemptionNotice& notice = context_.notice;
        const auto found = backend_.rank() == 0 ? journal_.look_at(metrics) : RunJournal::Found{};
        const StepClock::In waiting(context_.clock, StepPart::communication);
        auto agreed = detail::agree_on_report(backend_, {.kind = mine,
                                                         .failed = saver_.failed(),
                                                         .preempted = notice.given(),
                                                         .due = due,
                                                         .stops = found.stops,
                                                         .refused = found.error != nullptr,
                                                         .traced = trace_.is_ready(),
                                                         .times = context_.clock.take()});
        stopped_ = stopped_ || agreed.stops;
        journal_.spent(agreed.times);
        if (agreed.traced) {
            detail::write_trace(trace_, backend_, directory_);
        }
        if (agreed.preempted) {
            notice.agree(nullptr);
        }
        if (agreed.failed) {
            require_directory_together();
            finish();
        }
        if (agreed.refused) {
            on_rank_0([&] { std::rethrow_exception(found.error); });
        }
        return agreed;
    }

    /// Call before writing any file of a checkpoint, which would recreate the directory.
    void require_directory_together() {
        on_rank_0([&] { journal_.require_current(); });
    }

    /// Appends one line to the log, without a checkpoint.
    void record(const Config& metrics) {
        on_rank_0([&] { journal_.record(metrics); });
        tell_all(metrics, std::nullopt);
    }

    /// Passes the metrics of all ranks to callbacks, after the report.
    void tell_all(const Config& metrics, const std::optional<Checkpoint>& checkpoint) {
        journal_.tell_all(detail::gather_reports(backend_, options_.run.callbacks, metrics),
                          checkpoint);
    }

    /// `metrics`: of the report that saves the state, or null.
    void save_state(const Config* metrics, const ReportOptions& options,
                    const TakeSnapshot& take_snapshot) {
        const StepClock::In saving(context_.clock, StepPart::checkpoint);
        const auto begin = std::chrono::steady_clock::now(); // ranks arrive here together
        stop_is_saved_ = stopped_;
        require_directory_together();
        finish();
        checkpoint::Snapshot state = take_snapshot();
        const std::string name = saver_.begin(options.checkpoint_dir_name);
        const checkpoint::Part part{store_.staging().directory_of(name, backend_.rank()),
                                    backend_.rank(), backend_.size()};
        detail::succeed_together(backend_, [&] {
            state = policy_.select(std::move(state), part);
            if (policy_.writes_in_background()) {
                state = copy_(std::move(state));
            }
        });
        save(name, metrics, options, policy_.writes_in_background() && !preempted(),
             [this, part, state = std::move(state)] {
                 copy_.finish();
                 return copy_.with_sums(policy_.write(state, part));
             });
        if (interval_) {
            interval_->saved(begin);
        }
    }

    /// Records the report, if any, then saves its checkpoint.
    void save(const std::string& name, const Config* metrics, const ReportOptions& options,
              bool in_background, const WritePart& write_part) {
        Config line;
        on_rank_0([&] { line = journal_.announce(name, metrics, options); });
        const RankStatus::In saving(context_.status, Phase::saving);
        if (in_background) {
            saver_.save_in_background(name, line, write_part,
                                      [this, name, line] { journal_.committed(name, line); });
        } else {
            saver_.save(name, line, write_part);
            newest_ = store_.checkpoint(name);
            on_rank_0([&] { journal_.committed(name, line); });
        }
        if (metrics != nullptr) {
            tell_all(*metrics, in_background ? std::nullopt : newest_);
        }
    }

    void report_directory(const Config& metrics, const Checkpoint* directory,
                          const ReportOptions& given, checkpoint::FilesInMemory files) {
        stop_is_saved_ = stopped_;
        const StepClock::In saving(context_.clock, StepPart::checkpoint);
        require_directory_together();
        finish();
        const auto handling =
            detail::agree_on_handling(backend_, directory != nullptr || !files.empty(), given);
        ReportOptions options = given;
        options.metadata = detail::gather_metadata(backend_, directory, given.metadata);
        if (handling.in_place) {
            register_directory(metrics, directory, options);
            return;
        }
        const auto source =
            detail::source_of(backend_, directory, directory_, handling.delete_source);
        const auto names = detail::files_to_copy(backend_, source);
        const std::string name = saver_.begin(options.checkpoint_dir_name);
        const auto to = store_.staging().directory_of(name, backend_.rank());
        source_.set(handling.delete_source ? source : std::nullopt);
        save(name, &metrics, options, handling.in_background, [=, files = std::move(files)] {
            return source ? checkpoint::copy_files(*source, names, to)
                          : checkpoint::write_files(files, to);
        });
        if (!handling.in_background) {
            source_.remove();
        }
    }

    /// Registers a directory in the run's directory, or one that the user's function moves there.
    void register_directory(const Config& metrics, const Checkpoint* directory,
                            const ReportOptions& options) {
        std::string name;
        on_rank_0([&] { name = saver_.next_name(options.checkpoint_dir_name); });
        name = detail::bring_in_place(backend_, detail::broadcast(backend_, name, 0), directory,
                                      directory_, options);
        on_rank_0([&] { journal_.commit_in_place(name, metrics, options); });
        newest_ = store_.checkpoint(name);
        tell_all(metrics, newest_);
    }

    ProcessContext& context_;
    detail::AnyBackend& backend_;
    checkpoint::AnyPolicy& policy_;
    const TrainerOptions& options_;
    std::string attempt_; ///< unique for each start of the run
    RunDirectory directory_;
    checkpoint::Store store_; ///< rank 0's lists what is committed
    RunJournal journal_;      ///< used by rank 0
    std::optional<Checkpoint> newest_;
    bool stopped_ = false;
    bool stop_is_saved_ = false;
    checkpoint::HostCopy copy_;
    std::optional<checkpoint::Interval<>> interval_; ///< rank 0's decides
    CopiedDirectory source_;                         ///< of the checkpoint being saved
    detail::StepTrace trace_;
    Saver saver_; ///< last: its thread uses the others
};

} // namespace rtrain
