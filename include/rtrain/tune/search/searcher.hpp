// SPDX-License-Identifier: Apache-2.0
/// @file
/// Searchers suggest the configurations of trials. A concept, so that custom searchers work like
/// the built-in ones, and AnySearcher, which holds one of them. Guide: docs/tune.md. Cost tier 1:
/// Boost.JSON.
#pragma once

#include <rtrain/base/type_name.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/tune/base/cloned.hpp>
#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/search/space.hpp>

#include <boost/json/object.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace rtrain::tune {

struct Wait {};      ///< nothing now; call ask() again after the next `tell()`
struct Exhausted {}; ///< no more configurations

/// The configuration of the next trial, or why there is none.
using Suggestion = std::variant<Config, Wait, Exhausted>;

namespace internal {

template <class S>
concept HasBegin = requires(S& searcher, const Space& space, const Goal& goal) {
    searcher.begin(space, goal, std::int64_t{});
};
template <class S>
concept HasAsk = requires(S& searcher, const std::string& trial) {
    { searcher.ask(trial) } -> std::same_as<Suggestion>;
};
template <class S>
concept HasTell = requires(S& searcher, const std::string& trial, std::optional<double> score) {
    searcher.tell(trial, score, TrialEnd::completed);
};
template <class S>
concept HasOnResult = requires(S& searcher, const std::string& trial) {
    searcher.on_result(trial, std::int64_t{}, 0.0);
};
template <class S>
concept HasSave = requires(const S& searcher) {
    { searcher.save() } -> std::same_as<boost::json::object>;
};
template <class S>
concept HasLoad = requires(S& searcher, const boost::json::object& state) {
    searcher.load(state);
};

} // namespace internal

/// The members of every searcher. They are called from one thread.
/// - `begin(space, goal, num_samples)`: once, before all else. -1 samples: no limit. Throws
///   ConfigError for a space that the searcher cannot search.
/// - `ask(trial)`: the configuration of a new trial with this id.
/// - `tell(trial, score, end)`: a trial has ended. `score` as reported, not negated, even if the
///   goal is "min". None: the trial has reported none. NaN counts as a failure, and failures are
///   worse than any other score.
/// - `save()`, `load(state)`: after begin() with the same space, load(save()) makes it suggest what
///   the other would have suggested from then on, with the same trials running.
///
/// Optional: `on_result(trial, iteration, score)`, after each report of a running trial. NaN is
/// allowed and counts as the worst score.
template <class S>
concept Searcher = std::copyable<S> && internal::HasBegin<S> && internal::HasAsk<S> &&
    internal::HasTell<S> && internal::HasSave<S> && internal::HasLoad<S>;

/// Explains why `S` is not a searcher.
template <class S>
struct ExplainSearcher {
    static_assert(std::copyable<S>, "rtrain: Searcher not met: it cannot be copied [RT-U20]");
    static_assert(internal::HasBegin<S>,
                  "rtrain: this searcher lacks `void begin(const rtrain::tune::Space& space, const "
                  "rtrain::tune::Goal& goal, std::int64_t num_samples)` [RT-U21]");
    static_assert(internal::HasAsk<S>, "rtrain: this searcher lacks `rtrain::tune::Suggestion "
                                       "ask(const std::string& trial)` [RT-U22]");
    static_assert(internal::HasTell<S>,
                  "rtrain: this searcher lacks `void tell(const std::string& trial, "
                  "std::optional<double> score, rtrain::tune::TrialEnd end)` [RT-U23]");
    static_assert(internal::HasSave<S>,
                  "rtrain: this searcher lacks `boost::json::object save() const` [RT-U24]");
    static_assert(internal::HasLoad<S>, "rtrain: this searcher lacks `void load(const "
                                        "boost::json::object& state)` [RT-U25]");
    // Otherwise it would be silently ignored.
    static_assert(
        !requires { &S::on_result; } || internal::HasOnResult<S>,
        "rtrain: this searcher's `on_result` is not `void on_result(const std::string& trial, "
        "std::int64_t iteration, double score)` [RT-U26]");
};

/// Any searcher, chosen at run time. Copies are independent.
class AnySearcher {
public:
    template <class S>
    requires(!std::same_as<S, AnySearcher> && std::is_class_v<S>)
        AnySearcher(S searcher) { // NOLINT(google-explicit-constructor)
        static_cast<void>(ExplainSearcher<S>{});
        if constexpr (Searcher<S>) {
            held_ = internal::Cloned<Interface>(std::make_unique<Model<S>>(std::move(searcher)));
        }
    }

    /// Readable name of its type.
    [[nodiscard]] std::string name() const { return held_->name(); }

    void begin(const Space& space, const Goal& goal, std::int64_t num_samples) {
        held_->begin(space, goal, num_samples);
    }
    [[nodiscard]] Suggestion ask(const std::string& trial) { return held_->ask(trial); }
    void on_result(const std::string& trial, std::int64_t iteration, double score) {
        held_->on_result(trial, iteration, score);
    }
    void tell(const std::string& trial, std::optional<double> score, TrialEnd end) {
        held_->tell(trial, score, end);
    }
    [[nodiscard]] boost::json::object save() const { return held_->save(); }
    void load(const boost::json::object& state) { held_->load(state); }

private:
    struct Interface {
        virtual ~Interface() = default;
        [[nodiscard]] virtual std::unique_ptr<Interface> clone() const = 0;
        [[nodiscard]] virtual std::string name() const = 0;
        virtual void begin(const Space& space, const Goal& goal, std::int64_t num_samples) = 0;
        [[nodiscard]] virtual Suggestion ask(const std::string& trial) = 0;
        virtual void on_result(const std::string& trial, std::int64_t iteration, double score) = 0;
        virtual void tell(const std::string& trial, std::optional<double> score, TrialEnd end) = 0;
        [[nodiscard]] virtual boost::json::object save() const = 0;
        virtual void load(const boost::json::object& state) = 0;
    };
    template <class S>
    struct Model final : Interface {
        explicit Model(S given) : searcher(std::move(given)) {}
        [[nodiscard]] std::unique_ptr<Interface> clone() const override {
            return std::make_unique<Model>(searcher);
        }
        [[nodiscard]] std::string name() const override { return detail::type_name<S>(); }
        void begin(const Space& space, const Goal& goal, std::int64_t num_samples) override {
            searcher.begin(space, goal, num_samples);
        }
        [[nodiscard]] Suggestion ask(const std::string& trial) override {
            return searcher.ask(trial);
        }
        void on_result(const std::string& trial, std::int64_t iteration, double score) override {
            if constexpr (internal::HasOnResult<S>) {
                searcher.on_result(trial, iteration, score);
            }
        }
        void tell(const std::string& trial, std::optional<double> score, TrialEnd end) override {
            searcher.tell(trial, score, end);
        }
        [[nodiscard]] boost::json::object save() const override { return searcher.save(); }
        void load(const boost::json::object& state) override { searcher.load(state); }
        S searcher;
    };

    internal::Cloned<Interface> held_;
};
static_assert(Searcher<AnySearcher>);

} // namespace rtrain::tune
