// SPDX-License-Identifier: Apache-2.0
/// @file
/// A scheduler: what decides, report by report, which trials go on, pause, stop, or take another
/// trial's place, and which one runs next. Pure: it knows no process, no clock and no file.
///
/// @code
/// struct StopAtTwo {
///     void begin(const rtrain::tune::Goal&) {}
///     rtrain::Config add(const std::string&, rtrain::Config config) { return config; }
///     rtrain::tune::Verdict on_result(const rtrain::tune::TrialReport& report) {
///         return report.iteration < 2 ? rtrain::tune::Verdict(rtrain::tune::GoOn{})
///                                     : rtrain::tune::Verdict(rtrain::tune::Stop{});
///     }
///     ...
/// };
/// @endcode
/// Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/base/type_name.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/tune/base/cloned.hpp>
#include <rtrain/tune/base/goal.hpp>

#include <boost/json/object.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::tune {

struct GoOn {}; ///< nothing
/// The trial gives its place up, and goes on from this report when next() names it.
struct Pause {};
struct Stop {}; ///< the trial ends
/// The trial goes on from its donor's newest state, with another configuration. Its
/// training_iteration and time_total_s go on from those that the state has. A donor that has saved
/// no state has none to give: then the trial goes on as it is.
struct Exploit {
    std::string donor{}; ///< the trial itself: only its configuration changes
    Config config{};     ///< of the trial from then on
    // For the policy logs (tune/record/policy_log.hpp):
    std::int64_t iteration = 0;       ///< of the trial
    std::int64_t donor_iteration = 0; ///< of the donor's newest report
    Config donor_config{};            ///< when it has reported that
    bool log = true;                  ///< whether they are written
};

/// What follows for the trial that has reported.
using Verdict = std::variant<GoOn, Pause, Stop, Exploit>;

/// What follows for a paused trial, at once: it ends as stopped, or takes over the donor's state
/// and goes on from it when next() names it.
struct Order {
    std::string trial{};                ///< its id
    std::variant<Stop, Exploit> what{}; ///< one of both
};

/// A trial that waits for a place.
struct Candidate {
    std::string trial{}; ///< its id
    /// By a verdict of the scheduler. One that was interrupted by anything else is not.
    bool paused = false;
};

/// What every scheduler offers; members are called in this order.
/// - `begin`: once, before all else. Throws ConfigError for a goal that will not do.
/// - `add`: a new trial, or one that had ended as errored and runs again; returns the configuration
///   that it starts with, mostly the one given.
/// - `on_result`: a report of a running trial.
/// - `on_end`: the trial is over. `last`: its newest report, which on_result() has heard unless a
///   stop condition has ended the trial there; none for a trial that has failed or reported
///   nothing.
/// - `next`: which of the waiting trials, oldest first, takes a free place; it runs from then on.
///   None: not one of them, now.
/// - `save`, `load`: another object of the same options that loads what this one has saved decides
///   as this one from then on. begin() comes before load().
template <class S>
concept Scheduler = std::copyable<S> &&
    requires(S& scheduler, const S& saved, const Goal& goal, const std::string& trial,
             Config config, const TrialReport& report, TrialEnd end,
             const std::optional<TrialReport>& last, std::span<const Candidate> waiting,
             const boost::json::object& state) {
    scheduler.begin(goal);
    { scheduler.add(trial, std::move(config)) } -> std::same_as<Config>;
    { scheduler.on_result(report) } -> std::same_as<Verdict>;
    scheduler.on_end(trial, end, last);
    { scheduler.next(waiting) } -> std::same_as<std::optional<std::string>>;
    { saved.save() } -> std::same_as<boost::json::object>;
    scheduler.load(state);
};

/// Optional: `std::vector<Order> orders()`, what follows for paused trials since it was asked last.
/// Asked after each on_result(), whose Pause is heeded before, and each on_end().
template <class S>
concept HasOrders = requires(S& scheduler) {
    { scheduler.orders() } -> std::same_as<std::vector<Order>>;
};

/// Optional: `on_taken_over(trial, exploit)`: what an Exploit has asked for was done, before
/// anything else is heard.
template <class S>
concept HasOnTakenOver = requires(S& scheduler, const std::string& trial, const Exploit& exploit) {
    scheduler.on_taken_over(trial, exploit);
};

/// Optional: `bool wants_trials() const`, whether trials that run are to be compared with some that
/// are still to be added. Then these are added first, as far as the searcher gives them, and
/// another one before the last of them has ended.
template <class S>
concept WantsTrials = requires(const S& scheduler) {
    { scheduler.wants_trials() } -> std::same_as<bool>;
};

/// Why `S` is no scheduler.
template <class S>
struct ExplainScheduler {
    static_assert(std::copyable<S>, "rtrain: a scheduler must be copyable [RT-U60]");
    static_assert(
        Scheduler<S>,
        "rtrain: Scheduler not met: it needs begin(const Goal&), Config add(const std::string&, "
        "Config), Verdict on_result(const TrialReport&), on_end(const std::string&, TrialEnd, "
        "const std::optional<TrialReport>&), std::optional<std::string> next(std::span<const "
        "Candidate>), boost::json::object save() const, load(const boost::json::object&), all of "
        "rtrain::tune; see rtrain/tune/schedule/scheduler.hpp [RT-U61]");
};

/// Any scheduler, chosen at run time. A copy is a scheduler of its own.
class AnyScheduler {
public:
    template <class S>
    requires(!std::same_as<S, AnyScheduler> && std::is_class_v<S>)
        AnyScheduler(S scheduler) { // NOLINT(google-explicit-constructor)
        static_cast<void>(ExplainScheduler<S>{});
        if constexpr (Scheduler<S>) {
            held_ = internal::Cloned<Interface>(std::make_unique<Model<S>>(std::move(scheduler)));
        }
    }

    /// Of its type, for people.
    [[nodiscard]] std::string name() const { return held_->name(); }

    void begin(const Goal& goal) { held_->begin(goal); }
    [[nodiscard]] Config add(const std::string& trial, Config config) {
        return held_->add(trial, std::move(config));
    }
    [[nodiscard]] Verdict on_result(const TrialReport& report) { return held_->on_result(report); }
    void on_end(const std::string& trial, TrialEnd end, const std::optional<TrialReport>& last) {
        held_->on_end(trial, end, last);
    }
    [[nodiscard]] std::optional<std::string> next(std::span<const Candidate> waiting) {
        return held_->next(waiting);
    }
    [[nodiscard]] std::vector<Order> orders() { return held_->orders(); }
    void on_taken_over(const std::string& trial, const Exploit& exploit) {
        held_->on_taken_over(trial, exploit);
    }
    [[nodiscard]] bool wants_trials() const { return held_->wants_trials(); }
    /// Whether it may ever want some.
    [[nodiscard]] bool takes_trials_ahead() const { return held_->takes_trials_ahead(); }
    /// Whether trials may pause, and take over each other's states.
    [[nodiscard]] bool has_orders() const { return held_->has_orders(); }
    [[nodiscard]] boost::json::object save() const { return held_->save(); }
    void load(const boost::json::object& state) { held_->load(state); }

private:
    struct Interface {
        virtual ~Interface() = default;
        [[nodiscard]] virtual std::unique_ptr<Interface> clone() const = 0;
        [[nodiscard]] virtual std::string name() const = 0;
        virtual void begin(const Goal& goal) = 0;
        virtual Config add(const std::string& trial, Config config) = 0;
        virtual Verdict on_result(const TrialReport& report) = 0;
        virtual void on_end(const std::string& trial, TrialEnd end,
                            const std::optional<TrialReport>& last) = 0;
        virtual std::optional<std::string> next(std::span<const Candidate> waiting) = 0;
        virtual std::vector<Order> orders() = 0;
        [[nodiscard]] virtual bool has_orders() const = 0;
        virtual void on_taken_over(const std::string& trial, const Exploit& exploit) = 0;
        [[nodiscard]] virtual bool wants_trials() const = 0;
        [[nodiscard]] virtual bool takes_trials_ahead() const = 0;
        [[nodiscard]] virtual boost::json::object save() const = 0;
        virtual void load(const boost::json::object& state) = 0;
    };
    template <class S>
    struct Model final : Interface {
        explicit Model(S given) : scheduler(std::move(given)) {}
        [[nodiscard]] std::unique_ptr<Interface> clone() const override {
            return std::make_unique<Model>(scheduler);
        }
        [[nodiscard]] std::string name() const override { return rtrain::detail::type_name<S>(); }
        void begin(const Goal& goal) override { scheduler.begin(goal); }
        Config add(const std::string& trial, Config config) override {
            return scheduler.add(trial, std::move(config));
        }
        Verdict on_result(const TrialReport& report) override {
            return scheduler.on_result(report);
        }
        void on_end(const std::string& trial, TrialEnd end,
                    const std::optional<TrialReport>& last) override {
            scheduler.on_end(trial, end, last);
        }
        std::optional<std::string> next(std::span<const Candidate> waiting) override {
            return scheduler.next(waiting);
        }
        std::vector<Order> orders() override {
            if constexpr (HasOrders<S>) {
                return scheduler.orders();
            } else {
                return {};
            }
        }
        [[nodiscard]] bool has_orders() const override { return HasOrders<S>; }
        void on_taken_over(const std::string& trial, const Exploit& exploit) override {
            if constexpr (HasOnTakenOver<S>) {
                scheduler.on_taken_over(trial, exploit);
            }
        }
        [[nodiscard]] bool takes_trials_ahead() const override { return WantsTrials<S>; }
        [[nodiscard]] bool wants_trials() const override {
            if constexpr (WantsTrials<S>) {
                return scheduler.wants_trials();
            } else {
                return false;
            }
        }
        [[nodiscard]] boost::json::object save() const override { return scheduler.save(); }
        void load(const boost::json::object& state) override { scheduler.load(state); }
        S scheduler;
    };

    internal::Cloned<Interface> held_;
};

} // namespace rtrain::tune
