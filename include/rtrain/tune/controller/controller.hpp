// SPDX-License-Identifier: Apache-2.0
/// @file
/// Controller: a search as a state machine. It gets configurations from the searcher, lets the
/// scheduler choose what runs, receives the trials' reports, and decides what follows. It starts
/// nothing, has no thread and reads no clock; a runner does, and calls one member at a time.
///
/// All inputs are recorded in an EventLog. Replaying the events in a new controller restores an
/// interrupted search.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/base/metric.hpp>
#include <rtrain/tune/controller/event_log.hpp>
#include <rtrain/tune/controller/live_trial.hpp>
#include <rtrain/tune/controller/plan.hpp>
#include <rtrain/tune/controller/search_op.hpp>
#include <rtrain/tune/controller/search_state.hpp>
#include <rtrain/tune/controller/trial_message.hpp>
#include <rtrain/tune/record/trial.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::tune {

class Controller {
    using SearchOp = internal::SearchOp;

public:
    /// `directory`: the search's directory; trials are stored below it. Throws what begin() of the
    /// searcher and the scheduler throw.
    Controller(SearchPlan plan, std::filesystem::path directory)
        : state_(std::move(plan), std::move(directory)) {}
    Controller(const Controller&) = delete;
    Controller& operator=(const Controller&) = delete;

    /// Records all further events in `log`. Call it after replay().
    void record_to(EventLog& log) {
        log_ = &log;
        state_.begin_to_act();
    }

    [[nodiscard]] const SearchPlan& plan() const noexcept { return state_.plan(); }
    [[nodiscard]] const std::filesystem::path& directory() const noexcept {
        return state_.directory();
    }

    /// The searcher's state, for load_searcher() of a controller that will replay the same events.
    [[nodiscard]] boost::json::object searcher() const { return state_.plan().searcher.save(); }
    void load_searcher(const boost::json::object& saved) { state_.plan().searcher.load(saved); }

    /// Returns the trial to run next in a free place; none if no trial can run now. `now_s`, here
    /// and below: seconds that this process has searched.
    [[nodiscard]] std::optional<Assignment> next(double now_s) {
        state_.set_time(now_s);
        if (state_.is_stopping()) {
            return std::nullopt;
        }
        ask();
        if (!state_.trials().anyone_waits()) {
            return std::nullopt;
        }
        const auto chosen = state_.plan().scheduler.next(state_.trials().candidates());
        if (!chosen) {
            return std::nullopt;
        }
        auto assignment = begin(state_.trials().at(*chosen));
        if (state_.plan().scheduler.takes_trials_ahead()) {
            ask();
        }
        flush(); // the directory must not be ahead of the log
        return assignment;
    }

    /// Processes a report of a running trial. `time_s`: seconds since the trial began. `saved`:
    /// whether it saved a state under the name from next_state(). Returns true if the trial
    /// continues, false if it must return. Throws ConfigError [RT-U101] when the report lacks a
    /// required metric, [RT-C32].
    bool report(const std::string& id, Config metrics, double time_s, bool saved, double now_s) {
        state_.set_time(now_s);
        LiveTrial& it = state_.trials().at(id);
        if (it.told != Told::nothing) {
            return false;
        }
        if (!plan().goal.metric.empty() && !number_at(metrics, plan().goal.metric)) {
            lacks_metric(it, metrics);
        }
        Config event;
        if (log_ != nullptr) {
            event = {{"op", internal::search_op_names[SearchOp::report]},
                     {"trial", id},
                     {"metrics", metrics},
                     {"iteration", it.record.reports + 1},
                     {"time_s", time_s},
                     {"saved", saved},
                     {"t", state_.now_s()}};
        }
        state_.hear(it, std::move(metrics), time_s, saved);
        if (log_ != nullptr) { // not if `hear()` has thrown
            event["verdict"] = internal::verdict_names[internal::verdict_of(it.told)];
            log_->add(event);
        }
        if (saved || state_.plan().keeps_states_itself || it.told != Told::nothing) {
            flush();
            state_.remove_forgotten();
        }
        return it.told == Told::nothing;
    }

    /// A running trial has returned: it is done, or it was stopped or paused.
    void returned(const std::string& id, double now_s) {
        state_.set_time(now_s);
        note(SearchOp::returned, id);
        state_.leave(state_.trials().at(id));
        flush();
    }

    /// A running trial has failed. It runs again from its newest state, up to max_failures times.
    void failed(const std::string& id, const std::string& why, double now_s) {
        state_.set_time(now_s);
        note(SearchOp::failed, id, {{"why", why}});
        state_.fail(state_.trials().at(id), why);
        flush();
    }

    /// Records a state saved by the run of a trial that manages its states itself. `state` counts
    /// the reports and seconds of that run.
    void saved(const std::string& id, const SavedState& state) {
        note(SearchOp::saved, id,
             {{"state", state.name}, {"reports", state.reports}, {"time_s", state.time_s}});
        state_.save(state_.trials().at(id), state);
        flush();
    }

    /// Ends the trials that would stay paused forever. Call it after the last trial.
    void close() {
        for (LiveTrial& it : state_.trials().all()) {
            if (it.record.state == TrialState::paused) {
                note(SearchOp::given_up, it.record.id);
                state_.finish(it, TrialEnd::stopped);
            }
        }
        flush();
    }

    /// True if nothing runs and nothing more will.
    [[nodiscard]] bool is_over() const {
        return state_.trials().running() == 0 &&
               (state_.is_stopping() || (state_.is_exhausted() && !state_.trials().anyone_waits()));
    }
    /// True if no more trials begin: the time is up, or stop() was called.
    [[nodiscard]] bool is_stopping() const { return state_.is_stopping(); }
    void stop() noexcept { state_.stop(); }
    /// True if a trial is waiting for a place.
    [[nodiscard]] bool anyone_waits() const noexcept { return state_.trials().anyone_waits(); }
    [[nodiscard]] int running() const noexcept { return state_.trials().running(); }
    /// Duration of the search in seconds, all its starts together.
    [[nodiscard]] double elapsed_s() const noexcept { return state_.elapsed_s(); }

    /// The name of the directory for a trial's next state.
    [[nodiscard]] std::string next_state(const std::string& id) {
        return state_.trials().at(id).next_state_name();
    }
    [[nodiscard]] const TrialRecord& record(const std::string& id) {
        return state_.trials().at(id).record;
    }
    [[nodiscard]] std::vector<TrialRecord> records() const {
        std::vector<TrialRecord> records;
        records.reserve(state_.trials().all().size());
        for (const LiveTrial& it : state_.trials().all()) {
            records.push_back(it.record);
        }
        return records;
    }

    /// Exploits that Pbt has applied, oldest first, over all starts of the search.
    [[nodiscard]] const std::vector<AppliedExploit>& taken_over() const noexcept {
        return state_.taken_over();
    }

    /// Replays an event of a search. Throws ConfigError [RT-U107] where this search would have
    /// decided differently, std::exception for an unknown event.
    void replay(const boost::json::object& event) {
        const SearchOp op = internal::op_of(event);
        const std::string id(event.at("trial").as_string());
        state_.set_time(event.at("t").to_number<double>());
        switch (op) {
        case SearchOp::add:
            (void)state_.plan().searcher.ask(id);
            state_.add({.id = id,
                        .name = text_in(event, "name"),
                        .config = event.at("config").as_object(),
                        .directory = text_in(event, "directory")});
            return;
        case SearchOp::exhausted:
            return state_.set_exhausted();
        case SearchOp::begin:
            return replay_begin(state_.trials().at(id), text_in(event, "state"));
        case SearchOp::report:
            return replay_report(state_.trials().at(id), event);
        case SearchOp::returned:
            return state_.leave(state_.trials().at(id));
        case SearchOp::failed:
            return state_.fail(state_.trials().at(id), text_in(event, "why"));
        case SearchOp::saved:
            return state_.save(state_.trials().at(id), internal::saved_state_from(event));
        case SearchOp::given_up:
            return state_.finish(state_.trials().at(id), TrialEnd::stopped);
        case SearchOp::at:
            return state_.begin_at(event.at("time_s").to_number<double>());
        case SearchOp::restored:
            return state_.resume({.resume_unfinished = event.at("resume_unfinished").as_bool(),
                                  .resume_errored = event.at("resume_errored").as_bool(),
                                  .restart_errored = event.at("restart_errored").as_bool()});
        }
    }
    /// `time_s`: the time at which `now_s` of this process is 0, in seconds since 1970. Call it
    /// after record_to().
    void begin_at(double time_s) {
        note(SearchOp::at, "", {{"time_s", time_s}});
        state_.begin_at(time_s);
    }

    /// Marks what ran as interrupted, and makes these trials run again, also in a search that was
    /// over. Call it after replay() and record_to().
    void revive(const RestoreOptions& options) {
        note(SearchOp::restored, "",
             {{"resume_unfinished", options.resume_unfinished},
              {"resume_errored", options.resume_errored},
              {"restart_errored", options.restart_errored}});
        state_.resume(options);
        flush();
    }

    void flush() {
        if (log_ != nullptr) {
            log_->flush();
        }
    }

private:
    using LiveTrial = internal::LiveTrial;
    using Told = internal::Told;

    void note(SearchOp op, const std::string& id, Config more = {}) {
        if (log_ != nullptr) {
            more["op"] = internal::search_op_names[op];
            more["trial"] = id;
            more["t"] = state_.now_s();
            log_->add(more);
        }
    }

    [[nodiscard]] static std::string text_in(const boost::json::object& event, const char* field) {
        return std::string(event.at(field).as_string());
    }

    void replay_begin(LiveTrial& it, const std::string& from) {
        (void)state_.plan().scheduler.next(state_.trials().candidates());
        if (it.record.state != TrialState::pending && it.record.state != TrialState::paused) {
            throw another_search(it, "began", "would not wait");
        }
        forget_states(it, [&](const std::string& state) { return state != from; });
        state_.run(it);
    }

    void replay_report(LiveTrial& it, const boost::json::object& event) {
        if (it.record.state != TrialState::running) {
            throw another_search(it, "reported", "would not run");
        }
        state_.hear(it, event.at("metrics").as_object(), event.at("time_s").to_number<double>(),
                    event.at("saved").as_bool());
        const std::string recorded = text_in(event, "verdict");
        const auto verdict = internal::verdict_of(it.told);
        if (internal::verdict_names.parse(recorded) != verdict) {
            throw another_search(it, "was to " + recorded,
                                 detail::concat("would be to ", internal::verdict_names[verdict]));
        }
    }

    /// The error for events of a search that decided differently.
    [[nodiscard]] static ConfigError another_search(const LiveTrial& it, const std::string& then,
                                                    const std::string& now) {
        return {"RT-U107",
                detail::concat("after report ", it.record.reports, " of trial ", it.record.id,
                               ", the trial ", then, " in the recorded search, but now it ", now,
                               "; give scheduler and stop conditions the options that the search "
                               "was started with, or give the search a different name")};
    }

    void lacks_metric(const LiveTrial& it, const Config& report) {
        const ConfigError error("RT-U101",
                                detail::concat("the metric of the search is ", plan().goal.metric,
                                               ", but a report of trial ", it.record.id,
                                               " has no such number; it has ",
                                               internal::names_in_report(report),
                                               "; report it, or set tune.metric to one of these"));
        if (plan().require_metric) {
            throw ConfigError(error);
        }
        if (!std::exchange(warned_, true)) {
            console::warn("%s; such reports are skipped (logged once; tune.require_metric makes "
                          "them an error)",
                          error.what());
        }
    }

    /// Adds a pending trial if there is none, and all the trials that the scheduler wants, as far
    /// as the searcher suggests them.
    void ask() {
        if (state_.trials().pending() == 0) {
            (void)add_one();
        }
        while (state_.plan().scheduler.wants_trials() && add_one()) {
        }
    }

    /// Adds one pending trial; false if the searcher suggests none.
    [[nodiscard]] bool add_one() {
        if (state_.is_exhausted()) {
            return false;
        }
        const std::string id = state_.trials().next_id();
        Suggestion suggestion = state_.plan().searcher.ask(id);
        if (std::holds_alternative<Exhausted>(suggestion)) {
            state_.set_exhausted();
            note(SearchOp::exhausted, "");
        } else if (auto* const config = std::get_if<Config>(&suggestion)) {
            TrialRecord record = state_.plan().new_record(id, std::move(*config));
            require_own_directory(record);
            Config event{
                {"name", record.name}, {"directory", record.directory}, {"config", record.config}};
            state_.add(std::move(record));
            note(SearchOp::add, id, std::move(event));
            return true;
        }
        return false;
    }

    /// Throws unless the trial's directory is unique. Only custom names can collide.
    void require_own_directory(const TrialRecord& record) const {
        const SearchPlan& plan = state_.plan();
        if (!plan.trial_name && !plan.trial_dirname) {
            return;
        }
        for (const LiveTrial& other : state_.trials().all()) {
            if (other.record.directory == record.directory) {
                throw ConfigError(
                    "RT-U104", detail::concat("trials ", other.record.id, " and ", record.id,
                                              " would both use the directory \"", record.directory,
                                              "\"; include TrialInfo::id in the custom names"));
            }
        }
    }

    /// Forgets the newest states while they are `gone`; a run manages its own states.
    template <class Gone>
    void forget_states(LiveTrial& it, Gone&& gone) {
        while (!plan().keeps_states_itself && !it.states.empty() && gone(it.states.back().name)) {
            it.states.pop_back();
        }
    }

    [[nodiscard]] Assignment begin(LiveTrial& it) {
        const auto place = state_.directory() / it.record.directory;
        forget_states(it, [&](const std::string& state) { // the user may have deleted them
            return !std::filesystem::exists(place / state);
        });
        const bool has_state = !plan().keeps_states_itself && !it.states.empty();
        const std::string state = has_state ? it.states.back().name : "";
        note(SearchOp::begin, it.record.id, {{"state", state}});
        state_.run(it);
        return {.trial = it.record.id,
                .name = it.record.name,
                .config = it.record.config,
                .directory = place,
                .reports = it.record.reports,
                .state = state,
                .taken_over = it.taken_over,
                .base_reports = it.base_reports,
                .time_limit_s = state_.time_limit_of(it)};
    }

    internal::SearchState state_;
    EventLog* log_ = nullptr;
    bool warned_ = false; ///< about a report without the metric
};

} // namespace rtrain::tune
