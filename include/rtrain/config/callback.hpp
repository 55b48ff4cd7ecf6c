// SPDX-License-Identifier: Apache-2.0
/// @file
/// A callback: an object that a run notifies of its events, of the metrics of all its ranks, and of
/// its failures. Any type with some of the members below qualifies.
///
/// @code
/// struct Alarm {
///     void after_exception(const rtrain::track::RunInfo& run,
///                          const std::map<int, std::string>& failures) { ... }
/// };
/// @endcode
/// Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/base/type_name.hpp>
#include <rtrain/config/run_info.hpp>

#include <concepts>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain {

class Checkpoint;
struct Result;

namespace track {

/// Indexed by rank.
using Metrics = std::vector<Config>;
/// Rank to error message or cause of death.
using Failures = std::map<int, std::string>;

} // namespace track

namespace detail {

template <class C>
concept HasOnStart = requires(C& callback, const track::RunInfo& run) {
    callback.on_start(run);
};
template <class C>
concept HasAfterReport = requires(C& callback, const track::RunInfo& run,
                                  const track::Metrics& metrics,
                                  const std::optional<Checkpoint>& checkpoint) {
    callback.after_report(run, metrics, checkpoint);
};
template <class C>
concept HasAfterCheckpoint = requires(C& callback, const track::RunInfo& run,
                                      const Checkpoint& checkpoint) {
    callback.after_checkpoint(run, checkpoint);
};
template <class C>
concept HasAfterException = requires(C& callback, const track::RunInfo& run,
                                     const track::Failures& failures) {
    callback.after_exception(run, failures);
};
template <class C>
concept HasOnEnd = requires(C& callback, const Result& result) {
    callback.on_end(result);
};
template <class C>
concept RunsInBackground = requires {
    requires std::same_as<decltype(C::in_background), const bool>;
    requires C::in_background || !C::in_background; // known at compile time
};

} // namespace detail

namespace track {

/// Requirements of a callback: at least one of these members. They are called on rank 0, one at a
/// time; training waits meanwhile.
/// - `on_start`: a run starts or resumes; called again after each restart.
/// - `after_report`: a report is in result.json. `metrics` has the metrics of each rank, as
///   result.json would store them; ranks gather them only if a callback has this member.
///   `checkpoint` is the one made in the report, if already committed: one still being written in
///   the background is not passed.
/// - `after_checkpoint`: a checkpoint was committed. Called in the thread that wrote it.
/// - `after_exception`: training failed; `failures` has the error of each failed rank. Called
///   before the restart, if any. If processes died, the driver calls it, in its own process: a
///   callback must not rely on state from rank 0. -1 means no single rank, such as in a hang. Under
///   mpirun and srun it is not called if rank 0 died.
/// - `on_end`: the run has ended without a failure.
///
/// Optional: `static constexpr bool in_background = true`. Its members are then called in a thread
/// shared by all such callbacks, in the same order, with copies; training does not wait. fit()
/// waits at its end. A callback that is 10,000 calls late misses reports, and a warning says so.
///
/// A callback that throws is named on standard error and not called again; the run continues.
template <class C>
concept Callback = std::movable<C> &&
    (detail::HasOnStart<C> || detail::HasAfterReport<C> || detail::HasAfterCheckpoint<C> ||
     detail::HasAfterException<C> || detail::HasOnEnd<C>);

/// Explains why `C` is not a callback. A member with the right name but a wrong signature would be
/// silently ignored.
template <class C>
struct ExplainCallback {
    static_assert(
        !requires { &C::on_start; } || detail::HasOnStart<C>,
        "rtrain: this callback's `on_start` is not `void on_start(const rtrain::track::RunInfo& "
        "run)` [RT-V21]");
    static_assert(
        !requires { &C::after_report; } || detail::HasAfterReport<C>,
        "rtrain: this callback's `after_report` is not `void after_report(const "
        "rtrain::track::RunInfo& run, const rtrain::track::Metrics& metrics, const "
        "std::optional<rtrain::Checkpoint>& checkpoint)` [RT-V22]");
    static_assert(
        !requires { &C::after_checkpoint; } || detail::HasAfterCheckpoint<C>,
        "rtrain: this callback's `after_checkpoint` is not `void after_checkpoint(const "
        "rtrain::track::RunInfo& run, const rtrain::Checkpoint& checkpoint)` [RT-V23]");
    static_assert(
        !requires { &C::after_exception; } || detail::HasAfterException<C>,
        "rtrain: this callback's `after_exception` is not `void after_exception(const "
        "rtrain::track::RunInfo& run, const rtrain::track::Failures& failures)` [RT-V24]");
    static_assert(
        !requires { &C::on_end; } || detail::HasOnEnd<C>,
        "rtrain: this callback's `on_end` is not `void on_end(const rtrain::Result& result)` "
        "[RT-V25]");
    static_assert(
        !requires { &C::in_background; } || detail::RunsInBackground<C>,
        "rtrain: this callback's `in_background` is not `static constexpr bool in_background` "
        "[RT-V26]");
    /// True if `&C::on_start` names exactly one function.
    static constexpr bool has_a_name = requires { &C::on_start; }
    || requires { &C::after_report; }
    || requires { &C::after_checkpoint; }
    || requires { &C::after_exception; }
    || requires { &C::on_end; };
    static_assert(Callback<C> || has_a_name,
                  "rtrain: Callback not met: it has none of the members on_start, after_report, "
                  "after_checkpoint, after_exception, on_end [RT-V20]");
};

/// A type-erased callback. Copies are cheap and share it.
class AnyCallback {
public:
    template <class C>
    requires(!std::same_as<C, AnyCallback> && std::is_class_v<C>)
        AnyCallback(C callback) { // NOLINT(google-explicit-constructor)
        static_cast<void>(ExplainCallback<C>{});
        if constexpr (Callback<C>) {
            held_ = std::make_shared<Model<C>>(std::move(callback));
        }
    }

    /// The callback's type name, for messages.
    [[nodiscard]] std::string name() const { return held_->name(); }
    [[nodiscard]] bool in_background() const { return held_->in_background(); }
    [[nodiscard]] bool takes_reports() const { return held_->takes_reports(); }

    void on_start(const RunInfo& run) const { held_->on_start(run); }
    void after_report(const RunInfo& run, const Metrics& metrics,
                      const std::optional<Checkpoint>& checkpoint) const {
        held_->after_report(run, metrics, checkpoint);
    }
    void after_checkpoint(const RunInfo& run, const Checkpoint& checkpoint) const {
        held_->after_checkpoint(run, checkpoint);
    }
    void after_exception(const RunInfo& run, const Failures& failures) const {
        held_->after_exception(run, failures);
    }
    void on_end(const Result& result) const { held_->on_end(result); }

private:
    struct Interface {
        virtual ~Interface() = default;
        [[nodiscard]] virtual std::string name() const = 0;
        [[nodiscard]] virtual bool in_background() const = 0;
        [[nodiscard]] virtual bool takes_reports() const = 0;
        virtual void on_start(const RunInfo& run) = 0;
        virtual void after_report(const RunInfo& run, const Metrics& metrics,
                                  const std::optional<Checkpoint>& checkpoint) = 0;
        virtual void after_checkpoint(const RunInfo& run, const Checkpoint& checkpoint) = 0;
        virtual void after_exception(const RunInfo& run, const Failures& failures) = 0;
        virtual void on_end(const Result& result) = 0;
    };
    template <class C>
    struct Model final : Interface {
        explicit Model(C given) : callback(std::move(given)) {}
        [[nodiscard]] std::string name() const override { return detail::type_name<C>(); }
        [[nodiscard]] bool in_background() const override {
            if constexpr (detail::RunsInBackground<C>) {
                return C::in_background;
            } else {
                return false;
            }
        }
        [[nodiscard]] bool takes_reports() const override { return detail::HasAfterReport<C>; }
        void on_start(const RunInfo& run) override {
            if constexpr (detail::HasOnStart<C>) {
                callback.on_start(run);
            }
        }
        void after_report(const RunInfo& run, const Metrics& metrics,
                          const std::optional<Checkpoint>& checkpoint) override {
            if constexpr (detail::HasAfterReport<C>) {
                callback.after_report(run, metrics, checkpoint);
            }
        }
        void after_checkpoint(const RunInfo& run, const Checkpoint& checkpoint) override {
            if constexpr (detail::HasAfterCheckpoint<C>) {
                callback.after_checkpoint(run, checkpoint);
            }
        }
        void after_exception(const RunInfo& run, const Failures& failures) override {
            if constexpr (detail::HasAfterException<C>) {
                callback.after_exception(run, failures);
            }
        }
        void on_end(const Result& result) override {
            if constexpr (detail::HasOnEnd<C>) {
                callback.on_end(result);
            }
        }
        C callback;
    };

    std::shared_ptr<Interface> held_;
};

} // namespace track
} // namespace rtrain
