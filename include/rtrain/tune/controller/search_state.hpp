// SPDX-License-Identifier: Apache-2.0
/// @file
/// SearchState: the trials of a search, and the effects of reports, ends and failures on searcher,
/// scheduler and trials. It depends on its inputs only, so replaying all events of a search
/// restores it. Used by the controller only.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/base/metric.hpp>
#include <rtrain/tune/controller/live_trial.hpp>
#include <rtrain/tune/controller/plan.hpp>
#include <rtrain/tune/controller/trial_pool.hpp>
#include <rtrain/tune/record/trial.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::tune::internal {

class SearchState {
public:
    /// `directory`: the search's directory; trials are stored below it. Throws what begin() of the
    /// searcher and the scheduler throw.
    SearchState(SearchPlan plan, std::filesystem::path directory)
        : plan_(std::move(plan)), directory_(std::move(directory)), stoppers_(plan_.stoppers) {
        plan_.scheduler.begin(plan_.goal);
        plan_.searcher.begin(plan_.space, plan_.goal, plan_.num_samples);
    }

    [[nodiscard]] SearchPlan& plan() noexcept { return plan_; }
    [[nodiscard]] const SearchPlan& plan() const noexcept { return plan_; }
    [[nodiscard]] const std::filesystem::path& directory() const noexcept { return directory_; }
    [[nodiscard]] TrialPool& trials() noexcept { return trials_; }
    [[nodiscard]] const TrialPool& trials() const noexcept { return trials_; }

    /// Ends the replay: from now on inputs are new, and files are changed.
    void begin_to_act() noexcept { acts_ = true; }

    void set_time(double now_s) {
        now_s_ = std::max(now_s_, now_s);
        stoppers_.hear_time(elapsed_s());
    }
    [[nodiscard]] double now_s() const noexcept { return now_s_; }
    /// Duration of the search in seconds, all its starts together.
    [[nodiscard]] double elapsed_s() const noexcept { return before_s_ + now_s_; }

    /// `time_s`: the time at which now_s() was 0, in seconds since 1970.
    void begin_at(double time_s) noexcept { begun_at_s_ = time_s; }

    /// Exploits applied so far, oldest first.
    [[nodiscard]] const std::vector<AppliedExploit>& taken_over() const noexcept {
        return taken_over_;
    }

    /// True if no more trials begin: the time is up, or stop() was called.
    [[nodiscard]] bool is_stopping() const {
        return stopping_ || stoppers_.stops() ||
               (plan_.time_budget_s && elapsed_s() >= *plan_.time_budget_s);
    }
    void stop() noexcept { stopping_ = true; }
    /// True if the searcher has no more suggestions.
    [[nodiscard]] bool is_exhausted() const noexcept { return exhausted_; }
    void set_exhausted() noexcept { exhausted_ = true; }

    /// Adds a pending trial.
    void add(TrialRecord record) {
        record.config = plan_.scheduler.add(record.id, std::move(record.config));
        trials_.add(std::move(record));
    }

    /// Starts a waiting trial.
    void run(LiveTrial& it) {
        trials_.move(it, TrialState::running);
        if (it.record.begun_s == 0) {
            it.record.begun_s = begun_at_s_ + now_s_;
        }
        it.told = Told::nothing;
        it.last.reset();
        if (plan_.keeps_states_itself) {
            it.time_before_s = it.base_time_s;
        } else {
            it.rewind();
            it.time_before_s = it.record.time_s;
        }
        it.judge_anew(plan_.judge);
    }

    /// Time limit for the run that a trial begins now, in the run's own time: the limit of each
    /// trial, or that of the search.
    [[nodiscard]] std::optional<double> time_limit_of(const LiveTrial& it) const {
        std::optional<double> limit;
        if (plan_.time_limit_s) {
            limit = *plan_.time_limit_s - it.base_time_s;
        }
        if (plan_.time_budget_s) {
            const double trained = it.record.time_s - it.base_time_s;
            const double until = trained + *plan_.time_budget_s - elapsed_s();
            limit = std::min(until, limit.value_or(until));
        }
        return limit;
    }

    /// Processes a report: its effects on its trial and on others.
    void hear(LiveTrial& it, Config metrics, double time_s, bool saved) {
        TrialRecord& record = it.record;
        ++record.reports;
        if (plan_.keeps_states_itself) { // runs measure their training time more precisely
            time_s = number_at(metrics, "time_total_s").value_or(time_s);
        }
        record.time_s = it.time_before_s + time_s;
        metrics["training_iteration"] = record.reports;
        metrics["time_total_s"] = record.time_s;
        metrics["trial_id"] = record.id;
        if (it.taken_over > 0) {
            metrics[takeovers_field] = it.taken_over;
        }
        if (saved) {
            it.save({it.next_state_name(), record.reports, record.time_s});
            forget_old_states(it);
        }
        const auto score = number_at(metrics, plan_.goal.metric);
        if (score) { // else the previous score stays
            it.score = std::isnan(*score) ? std::nullopt : score;
            if (!it.searcher_knows) {
                plan_.searcher.on_result(record.id, record.reports, *score);
            }
        }
        record.metrics = metrics;
        TrialReport report{.trial = record.id,
                           .iteration = record.reports,
                           .time_s = record.time_s,
                           .metrics = std::move(metrics),
                           .others_wait = trials_.anyone_waits() || !exhausted_};
        stoppers_.hear(report);
        judge(it, std::move(report));
        take_orders();
        if (it.told == Told::nothing && is_stopping()) {
            it.told = Told::end;
        }
    }

    /// Deletes states whose trials have newer ones. Call it after the log has recorded those.
    void remove_forgotten() {
        for (const std::filesystem::path& state : std::exchange(forgotten_, {})) {
            std::error_code ignored;
            std::filesystem::remove_all(state, ignored);
        }
    }

    /// A running trial has returned.
    void leave(LiveTrial& it) {
        if (it.told == Told::pause) {
            trials_.move(it, TrialState::paused);
        } else if (it.told == Told::exploit) {
            trials_.move(it, TrialState::pending);
        } else {
            finish(it, it.told == Told::stop ? TrialEnd::stopped : TrialEnd::completed);
        }
    }

    /// Records a state saved by the trial's run, in the run's own counts. Ignored for a trial that
    /// will resume from another trial's state.
    void save(LiveTrial& it, SavedState state) {
        if (it.told == Told::exploit) {
            return;
        }
        state.reports += it.base_reports;
        state.time_s += it.base_time_s;
        it.record.checkpoint = state.name;
        it.states = {std::move(state)};
    }

    /// A running trial has failed. Failures after a verdict do not count.
    void fail(LiveTrial& it, const std::string& why) {
        if (it.told != Told::nothing) {
            leave(it);
            return;
        }
        ++it.record.failures;
        it.record.error = why;
        if (plan_.max_failures < 0 || it.record.failures <= plan_.max_failures) {
            trials_.move(it, TrialState::pending);
        } else {
            finish(it, TrialEnd::errored);
        }
    }

    void finish(LiveTrial& it, TrialEnd end) {
        TrialRecord& record = it.record;
        trials_.move(it, end == TrialEnd::errored ? TrialState::errored : TrialState::terminated);
        record.early = end == TrialEnd::stopped;
        record.ended_s = begun_at_s_ + now_s_;
        it.judge = nullptr;
        if (end != TrialEnd::errored) { // errored trials may be resumed
            it.heard = {};
            record.error.clear();
        }
        if (!it.searcher_knows) {
            it.searcher_knows = true;
            const bool lost = end == TrialEnd::errored || !it.score;
            plan_.searcher.tell(record.id, lost ? std::nullopt : it.score,
                                lost ? TrialEnd::errored : end);
        }
        plan_.scheduler.on_end(record.id, end, it.last);
        it.last.reset();
        take_orders();
    }

    /// Continues the search in a new process: what ran is interrupted.
    void resume(const RestoreOptions& options) {
        before_s_ += std::exchange(now_s_, 0);
        stopping_ = false;
        exhausted_ = !options.resume_unfinished; // else the searcher reports it again
        for (LiveTrial& it : trials_.all()) {
            if (it.record.state == TrialState::running && it.told != Told::nothing) {
                leave(it); // apply the pending verdict
            } else if (it.record.state == TrialState::running) {
                trials_.move(it, TrialState::pending);
            }
        }
        for (LiveTrial& it : trials_.all()) {
            if (it.record.state == TrialState::errored) {
                if (options.resume_errored || options.restart_errored) {
                    run_again(it, options.restart_errored);
                }
            } else if (!has_ended(it) && !options.resume_unfinished) {
                finish(it, TrialEnd::stopped);
            }
        }
    }

private:
    void judge(LiveTrial& it, TrialReport report) {
        if (it.judge) {
            it.heard.push_back(report.metrics);
            if (it.judge(report.metrics)) {
                it.told = Told::end;
                it.last = std::move(report);
                return;
            }
        }
        const auto* const done = report.metrics.if_contains("done");
        if (done != nullptr && done->is_bool() && done->get_bool()) { // the trial ends itself
            it.told = Told::end;
            it.last = std::move(report);
            return;
        }
        const Verdict verdict = plan_.scheduler.on_result(report);
        if (std::holds_alternative<Pause>(verdict)) {
            it.told = Told::pause;
        } else if (std::holds_alternative<Stop>(verdict)) {
            it.told = Told::stop;
        } else if (const auto* const exploit = std::get_if<Exploit>(&verdict)) {
            take_over(it, *exploit);
        }
    }

    /// Applies the scheduler's orders for trials that are paused or about to pause.
    void take_orders() {
        for (const Order& order : plan_.scheduler.orders()) {
            LiveTrial& it = trials_.at(order.trial);
            if (const auto* const exploit = std::get_if<Exploit>(&order.what)) {
                take_over(it, *exploit);
            } else if (it.record.state == TrialState::running) {
                it.told = Told::stop;
            } else if (!has_ended(it)) {
                finish(it, TrialEnd::stopped);
            }
        }
    }

    static bool has_ended(const LiveTrial& it) { return tune::is_over(it.record.state); }

    /// Makes the trial resume from the donor's newest state with the new configuration. Without
    /// such a state, the trial continues unchanged.
    void take_over(LiveTrial& it, const Exploit& exploit) {
        const LiveTrial& donor = trials_.at(exploit.donor);
        if (donor.states.empty()) {
            warn_once(it, donor, "the donor has saved no state");
            return;
        }
        SavedState state = donor.states.back();
        const auto from = directory_ / donor.record.directory / state.name;
        state.name = plan_.keeps_states_itself ? detail::concat("../", taken_over_directory, "/",
                                                                it.record.id, "_", it.taken_over)
                                               : it.next_state_name();
        if (!clone(it, donor, from, directory_ / it.record.directory / state.name)) {
            return;
        }
        if (plan_.keeps_states_itself) {
            it.states = {state};
            it.base_reports = state.reports;
            it.base_time_s = state.time_s;
        } else {
            it.save(std::move(state));
        }
        it.rewind();
        ++it.taken_over;
        taken_over_.push_back({it.record.id, exploit});
        it.record.config = exploit.config;
        it.record.donor = exploit.donor;
        if (it.record.state == TrialState::running) {
            it.told = Told::exploit;
        }
        plan_.scheduler.on_taken_over(it.record.id, exploit);
    }

    /// Returns false if the state cannot be cloned: a running donor may have deleted it meanwhile.
    /// Existing files stay.
    [[nodiscard]] bool clone(LiveTrial& it, const LiveTrial& donor,
                             const std::filesystem::path& from, const std::filesystem::path& to) {
        if (!plan_.keeps_states_itself) {
            if (acts_) { // already done when the event was first processed
                SearchPlan::clone(from, to);
            }
            return true;
        }
        // Marks this attempt as failed for a later start, even if the next attempt succeeds.
        const std::filesystem::path missed =
            detail::concat(to.string(), "_missed_", it.missed_takeovers);
        if (acts_) {
            std::filesystem::remove(missed);
            try {
                SearchPlan::clone(from, to);
            } catch (const std::filesystem::filesystem_error& error) {
                warn_once(it, donor, error.what());
            }
            if (!std::filesystem::exists(to)) {
                std::filesystem::create_directories(missed);
            }
        }
        const bool is_done = !std::filesystem::exists(missed) && std::filesystem::exists(to);
        it.missed_takeovers = is_done ? 0 : it.missed_takeovers + 1;
        return is_done;
    }

    void warn_once(const LiveTrial& it, const LiveTrial& donor, const char* why) {
        if (acts_ && !std::exchange(warned_, true)) {
            console::warn(
                "trial %s continues without taking over the state of trial %s: %s; have trials "
                "report a state with each report that Pbt may take one from (logged once)",
                it.record.name.c_str(), donor.record.name.c_str(), why);
        }
    }

    void forget_old_states(LiveTrial& it) {
        const auto keep = static_cast<std::size_t>(plan_.states_to_keep.value_or(0));
        while (keep > 0 && it.states.size() > keep) {
            if (acts_) {
                forgotten_.push_back(directory_ / it.record.directory / it.states.front().name);
            }
            it.states.erase(it.states.begin());
        }
    }

    /// Makes a failed trial wait for a place.
    void run_again(LiveTrial& it, bool from_the_beginning) {
        if (from_the_beginning) {
            it.states.clear();
            it.rewind();
            it.heard.clear();
            it.base_reports = 0;
            it.base_time_s = 0;
            it.taken_over = plan_.keeps_states_itself ? it.taken_over + 1 : 0;
        }
        it.record.failures = 0;
        it.record.error.clear();
        it.record.config = plan_.scheduler.add(it.record.id, std::move(it.record.config));
        trials_.move(it, TrialState::pending);
    }

    SearchPlan plan_;
    std::filesystem::path directory_;
    StopperJudge stoppers_;
    TrialPool trials_;
    std::vector<AppliedExploit> taken_over_;
    std::vector<std::filesystem::path> forgotten_; ///< states replaced by newer ones
    double begun_at_s_ = 0;                        ///< since 1970, of this process
    double before_s_ = 0;                          ///< in earlier starts
    double now_s_ = 0;
    bool exhausted_ = false;
    bool stopping_ = false;
    bool acts_ = false;
    bool warned_ = false; ///< about a trial that could not take over a state
};

} // namespace rtrain::tune::internal
