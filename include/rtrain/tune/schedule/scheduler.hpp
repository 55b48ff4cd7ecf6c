// SPDX-License-Identifier: Apache-2.0
/// @file
/// A scheduler decides at each report which trials continue, pause, stop, or take over another
/// trial's state, and which trial runs next. Pure: no processes, no clock, no files.
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

struct GoOn {}; ///< the trial continues
/// The trial gives up its place; it continues from this report when next() returns it.
struct Pause {};
struct Stop {}; ///< the trial ends
/// The trial resumes from its donor's newest state, with another configuration. Its
/// training_iteration and time_total_s continue from those in the state. If the donor has saved no
/// state, the trial continues unchanged.
struct Exploit {
    std::string donor{}; ///< may be the trial itself: then only its configuration changes
    Config config{};     ///< the trial's new configuration
    // For the policy logs (tune/record/policy_log.hpp):
    std::int64_t iteration = 0;       ///< of the trial
    std::int64_t donor_iteration = 0; ///< of the donor's newest report
    Config donor_config{};            ///< at that report
    bool log = true;                  ///< whether the policy logs record it
};

/// Decision about a trial that has reported.
using Verdict = std::variant<GoOn, Pause, Stop, Exploit>;

/// Immediate decision about a paused trial. It ends as stopped, or resumes from the donor's state
/// when next() returns it.
struct Order {
    std::string trial{};                ///< its id
    std::variant<Stop, Exploit> what{}; ///< either one
};

/// A trial that waits for a place.
struct Candidate {
    std::string trial{}; ///< its id
    /// True if a verdict of the scheduler paused it, false if it was interrupted otherwise.
    bool paused = false;
};

/// The members of every scheduler, called in this order.
/// - `begin`: once, before all else. Throws ConfigError for an unsuitable goal.
/// - `add`: a new trial, or an errored one that runs again; returns the configuration that it
///   starts with, usually the given one.
/// - `on_result`: a report of a running trial.
/// - `on_end`: the trial is over. `last`: its newest report, already passed to on_result() unless a
///   stop condition ended the trial at that report; none if the trial failed or reported nothing.
/// - `next`: returns the trial that takes a free place and runs. The argument lists the waiting
///   trials, oldest first. None: no trial runs now.
/// - `save`, `load`: after load(), another object with the same options decides as this one would.
///   begin() is called before load().
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

/// Optional: `std::vector<Order> orders()` returns new decisions about paused trials. Called after
/// each on_result(), once its Pause is applied, and after each on_end().
template <class S>
concept HasOrders = requires(S& scheduler) {
    { scheduler.orders() } -> std::same_as<std::vector<Order>>;
};

/// Optional: `on_taken_over(trial, exploit)`: an Exploit was applied. Called before any other
/// event.
template <class S>
concept HasOnTakenOver = requires(S& scheduler, const std::string& trial, const Exploit& exploit) {
    scheduler.on_taken_over(trial, exploit);
};

/// Optional: `bool wants_trials() const`, true if running trials need to be compared with trials
/// not yet added. Then these are added first, as far as the searcher suggests them, and one more
/// before the last of them has ended.
template <class S>
concept WantsTrials = requires(const S& scheduler) {
    { scheduler.wants_trials() } -> std::same_as<bool>;
};

/// Explains why `S` is not a scheduler.
template <class S>
struct ExplainScheduler {
    static_assert(std::copyable<S>, "rtrain: a scheduler must be copyable [RT-U60]");
    static_assert(Scheduler<S>,
                  "rtrain: Scheduler not met: it needs begin(const Goal&), Config add(const "
                  "std::string&, Config), Verdict on_result(const TrialReport&), on_end(const "
                  "std::string&, TrialEnd, const std::optional<TrialReport>&), "
                  "std::optional<std::string> next(std::span<const Candidate>), "
                  "boost::json::object save() const, load(const boost::json::object&), all of "
                  "rtrain::tune; see rtrain/tune/schedule/scheduler.hpp [RT-U61]");
};

/// Any scheduler, chosen at run time. Copies are independent.
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

    /// Readable name of its type.
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
    /// True if wants_trials() may ever return true.
    [[nodiscard]] bool takes_trials_ahead() const { return held_->takes_trials_ahead(); }
    /// True if trials may pause and take over each other's states.
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
