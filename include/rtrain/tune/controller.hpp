// SPDX-License-Identifier: Apache-2.0
/// @file
/// Controller: a search as a state machine. It asks the searcher for configurations and the
/// scheduler what runs, hears what trials report, and says what follows. It starts nothing, has no
/// thread and reads no clock: a runner does, and calls one member at a time.
///
/// What it is told goes into an EventLog. A search that was interrupted is where it was when a new
/// controller has heard the same events.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/base/metric.hpp>
#include <rtrain/tune/event_log.hpp>
#include <rtrain/tune/live_trial.hpp>
#include <rtrain/tune/plan.hpp>
#include <rtrain/tune/record/trial.hpp>
#include <rtrain/tune/search_state.hpp>

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::tune {

class Controller {
public:
    /// `directory`: of the search; trials lie below. Throws what begin() of searcher and scheduler
    /// throw.
    Controller(SearchPlan plan, std::filesystem::path directory)
        : state_(std::move(plan), std::move(directory)) {}
    Controller(const Controller&) = delete;
    Controller& operator=(const Controller&) = delete;

    /// Where all events go from now on; behind replay().
    void record_to(EventLog& log) {
        log_ = &log;
        state_.begin_to_act();
    }

    [[nodiscard]] const SearchPlan& plan() const noexcept { return state_.plan(); }
    [[nodiscard]] const std::filesystem::path& directory() const noexcept {
        return state_.directory();
    }

    /// The searcher's state, for load_searcher() of a controller that is to hear the same events.
    [[nodiscard]] boost::json::object searcher() const { return state_.plan().searcher.save(); }
    void load_searcher(const boost::json::object& saved) { state_.plan().searcher.load(saved); }

    /// What runs next in a free place; none: nothing now. `now_s`, here and below: seconds that
    /// this process has searched.
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
        flush(); // its directory must not know more than the log
        return assignment;
    }

    /// A running trial has reported. `time_s`: since it was begun. `saved`: it has left a state
    /// under the name that next_state() has given. True: it goes on; else it is to return. Throws
    /// ConfigError [RT-U101] when the report lacks a metric that is required, [RT-C32].
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
            event = {{"op", "report"},     {"trial", id},
                     {"metrics", metrics}, {"iteration", it.record.reports + 1},
                     {"time_s", time_s},   {"saved", saved},
                     {"t", state_.now_s()}};
        }
        state_.hear(it, std::move(metrics), time_s, saved);
        if (log_ != nullptr) { // what cannot be heard now could not be heard again
            event["verdict"] = internal::verdict_of(it.told);
            log_->add(event);
        }
        if (saved || state_.plan().keeps_states_itself || it.told != Told::nothing) {
            flush();
            state_.remove_forgotten();
        }
        return it.told == Told::nothing;
    }

    /// A running trial has returned: it is done, or has done as it was told.
    void returned(const std::string& id, double now_s) {
        state_.set_time(now_s);
        note("returned", id);
        state_.leave(state_.trials().at(id));
        flush();
    }

    /// A running trial has failed. It runs again, from its newest state, as often as max_failures
    /// allows.
    void failed(const std::string& id, const std::string& why, double now_s) {
        state_.set_time(now_s);
        note("failed", id, {{"why", why}});
        state_.fail(state_.trials().at(id), why);
        flush();
    }

    /// The run of a trial that keeps its states itself has saved one, behind so many reports and
    /// seconds of that run.
    void saved(const std::string& id, const SavedState& state) {
        note("saved", id,
             {{"state", state.name}, {"reports", state.reports}, {"time_s", state.time_s}});
        state_.save(state_.trials().at(id), state);
        flush();
    }

    /// Behind the last trial: those end that would pause for ever.
    void close() {
        for (LiveTrial& it : state_.trials().all()) {
            if (it.record.state == TrialState::paused) {
                note("given_up", it.record.id);
                state_.finish(it, TrialEnd::stopped);
            }
        }
        flush();
    }

    /// Nothing runs, and nothing will.
    [[nodiscard]] bool is_over() const {
        return state_.trials().running() == 0 &&
               (state_.is_stopping() || (state_.is_exhausted() && !state_.trials().anyone_waits()));
    }
    /// No trial begins any more: the time is up, or somebody has said so.
    [[nodiscard]] bool is_stopping() const { return state_.is_stopping(); }
    void stop() noexcept { state_.stop(); }
    /// A trial has no place, and may get one.
    [[nodiscard]] bool anyone_waits() const noexcept { return state_.trials().anyone_waits(); }
    [[nodiscard]] int running() const noexcept { return state_.trials().running(); }
    /// That the search has lasted, all its starts together, in seconds.
    [[nodiscard]] double elapsed_s() const noexcept { return state_.elapsed_s(); }

    /// The name of the directory that a trial's next state goes to.
    [[nodiscard]] std::string next_state(const std::string& id) {
        return state_.trials().at(id).next_state_name();
    }
    [[nodiscard]] const TrialRecord& record(const std::string& id) {
        return state_.trials().at(id).record;
    }
    [[nodiscard]] std::vector<TrialRecord> records() const {
        std::vector<TrialRecord> records;
        for (const LiveTrial& it : state_.trials().all()) {
            records.push_back(it.record);
        }
        return records;
    }

    /// What Pbt has had trials take over, oldest first, of all starts of the search.
    [[nodiscard]] const std::vector<TakenOver>& taken_over() const noexcept {
        return state_.taken_over();
    }

    /// Hears an event of a search again. Throws ConfigError [RT-U107] where this one would not have
    /// come to it, std::exception where it is of none.
    void replay(const boost::json::object& event) {
        const std::string op(event.at("op").as_string());
        const std::string id(event.at("trial").as_string());
        const auto text = [&](const char* field) {
            return std::string(event.at(field).as_string());
        };
        state_.set_time(event.at("t").to_number<double>());
        if (op == "restored") {
            state_.take_up({.resume_unfinished = event.at("resume_unfinished").as_bool(),
                            .resume_errored = event.at("resume_errored").as_bool(),
                            .restart_errored = event.at("restart_errored").as_bool()});
        } else if (op == "add") {
            (void)state_.plan().searcher.ask(id);
            state_.add({.id = id,
                        .name = text("name"),
                        .config = event.at("config").as_object(),
                        .directory = text("directory")});
        } else if (op == "exhausted") {
            state_.set_exhausted();
        } else if (op == "begin") {
            (void)state_.plan().scheduler.next(state_.trials().candidates());
            LiveTrial& it = state_.trials().at(id);
            if (it.record.state != TrialState::pending && it.record.state != TrialState::paused) {
                throw another_search(it, "began", "would not wait");
            }
            forget_states(it, [&](const std::string& state) { return state != text("state"); });
            state_.run(it);
        } else if (op == "report") {
            LiveTrial& it = state_.trials().at(id);
            if (it.record.state != TrialState::running) {
                throw another_search(it, "reported", "would not run");
            }
            state_.hear(it, event.at("metrics").as_object(), event.at("time_s").to_number<double>(),
                        event.at("saved").as_bool());
            if (text("verdict") != internal::verdict_of(it.told)) {
                throw another_search(it, "was to " + text("verdict"),
                                     std::string("would be to ") + internal::verdict_of(it.told));
            }
        } else if (op == "returned") {
            state_.leave(state_.trials().at(id));
        } else if (op == "failed") {
            state_.fail(state_.trials().at(id), text("why"));
        } else if (op == "given_up") {
            state_.finish(state_.trials().at(id), TrialEnd::stopped);
        } else if (op == "at") {
            state_.begin_at(event.at("time_s").to_number<double>());
        } else if (op == "saved") {
            state_.save(state_.trials().at(id),
                        {.name = text("state"),
                         .reports = event.at("reports").to_number<std::int64_t>(),
                         .time_s = event.at("time_s").to_number<double>()});
        } else {
            throw std::invalid_argument("unknown event " + op);
        }
    }
    /// When `now_s` of this process is 0, in seconds since 1970. Behind record_to().
    void begin_at(double time_s) {
        note("at", "", {{"time_s", time_s}});
        state_.begin_at(time_s);
    }

    /// Behind replay() and record_to(): what ran is interrupted, and these trials run again. A
    /// search that was over goes on with them.
    void revive(const RestoreOptions& options) {
        note("restored", "",
             {{"resume_unfinished", options.resume_unfinished},
              {"resume_errored", options.resume_errored},
              {"restart_errored", options.restart_errored}});
        state_.take_up(options);
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

    void note(const char* op, const std::string& id, Config more = {}) {
        if (log_ != nullptr) {
            more["op"] = op;
            more["trial"] = id;
            more["t"] = state_.now_s();
            log_->add(more);
        }
    }

    /// Its events are those of one that decides otherwise.
    [[nodiscard]] static ConfigError another_search(const LiveTrial& it, const std::string& then,
                                                    const std::string& now) {
        return {"RT-U107",
                detail::concat("behind its report ", it.record.reports, ", trial ", it.record.id,
                               " of the search ", then, ", but now it ", now,
                               "; give scheduler and stop conditions the options with which the "
                               "search was begun, or give it another name")};
    }

    void lacks_metric(const LiveTrial& it, const Config& report) {
        const ConfigError error("RT-U101",
                                detail::concat("the search is for the metric ", plan().goal.metric,
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

    /// Has a trial wait that has not begun, if the searcher gives one, and all that the scheduler
    /// wants.
    void ask() {
        if (state_.trials().pending() == 0) {
            (void)add_one();
        }
        while (state_.plan().scheduler.wants_trials() && add_one()) {
        }
    }

    /// Has one more trial wait; false where the searcher gives none.
    [[nodiscard]] bool add_one() {
        if (state_.is_exhausted()) {
            return false;
        }
        const std::string id = state_.trials().next_id();
        Suggestion suggestion = state_.plan().searcher.ask(id);
        if (std::holds_alternative<Exhausted>(suggestion)) {
            state_.set_exhausted();
            note("exhausted", "");
        } else if (auto* const config = std::get_if<Config>(&suggestion)) {
            TrialRecord record = state_.plan().new_record(id, std::move(*config));
            require_own_directory(record);
            Config event{
                {"name", record.name}, {"directory", record.directory}, {"config", record.config}};
            state_.add(std::move(record));
            note("add", id, std::move(event));
            return true;
        }
        return false;
    }

    /// Names that rtrain makes itself differ.
    void require_own_directory(const TrialRecord& record) const {
        const SearchPlan& plan = state_.plan();
        if (!plan.trial_name && !plan.trial_dirname) {
            return;
        }
        for (const LiveTrial& other : state_.trials().all()) {
            if (other.record.directory == record.directory) {
                throw ConfigError(
                    "RT-U104",
                    detail::concat("trials ", other.record.id, " and ", record.id,
                                   " would both have the directory \"", record.directory,
                                   "\"; put TrialInfo::id into the names that are made for them"));
            }
        }
    }

    /// The newest ones that have `gone`; those of a run are the run's own.
    template <class Gone>
    void forget_states(LiveTrial& it, Gone&& gone) {
        while (!plan().keeps_states_itself && !it.states.empty() && gone(it.states.back().name)) {
            it.states.pop_back();
        }
    }

    [[nodiscard]] Assignment begin(LiveTrial& it) {
        const auto place = state_.directory() / it.record.directory;
        forget_states(it, [&](const std::string& state) { // somebody has deleted them
            return !std::filesystem::exists(place / state);
        });
        const bool has_state = !plan().keeps_states_itself && !it.states.empty();
        const std::string state = has_state ? it.states.back().name : "";
        note("begin", it.record.id, {{"state", state}});
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
    bool warned_ = false; ///< of a report without the metric
};

} // namespace rtrain::tune
