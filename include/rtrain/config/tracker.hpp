// SPDX-License-Identifier: Apache-2.0
/// @file
/// A tracker writes the reports of a run for people, to files or to a server. Examples are
/// track/files/csv.hpp, track/files/json_lines.hpp and track/tensorboard/tensorboard.hpp; any type
/// that satisfies the concept qualifies.
///
/// A tracker runs on rank 0, in its own thread, and reads result.json: training never waits for it,
/// and reports that it has not written yet are in that file. All its members are called from that
/// thread. If one throws, the call is retried later with the same arguments; the run continues.
/// Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/config/run_info.hpp>

#include <boost/json/object.hpp>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain {

namespace track {

/// A line of the run's log.
struct Line {
    bool is_step = false;    ///< a step of worker.log(), not a report
    std::int64_t number = 0; ///< number of the report or step, from 1
    double time_s = 0;       ///< time of the report or step, in seconds since 1970
    const Config& values;    ///< metrics, and for a report the fields that rtrain fills in
    std::string_view text;   ///< its line in the log: one line of JSON without the line break
};

/// The reason that no line follows.
enum class Ending : unsigned char {
    finished, ///< the run is done
    paused,   ///< the run was preempted, and resumes when the same command is run again
    failed    ///< another start may resume it
};

} // namespace track

namespace detail {

template <class T>
concept HasStart = requires(T& tracker, const track::RunInfo& info) {
    tracker.start(info);
};
template <class T>
concept HasRewind = requires(T& tracker, track::Position position) {
    { tracker.rewind(position) } -> std::same_as<track::Position>;
};
template <class T>
concept HasWriteLine = requires(T& tracker, const track::Line& line) {
    tracker.write(line);
};
template <class T>
concept HasFinishOfAnyEnding = requires(T& tracker) {
    tracker.finish();
};
template <class T>
concept HasFinishByEnding = requires(T& tracker, track::Ending ending) {
    tracker.finish(ending);
};
template <class T>
concept HasFinish = HasFinishOfAnyEnding<T> || HasFinishByEnding<T>;
template <class T>
concept HasFlush = requires(T& tracker) {
    tracker.flush();
};
template <class T>
concept HasOutput = requires(const T& tracker) {
    { tracker.output() } -> std::convertible_to<std::string>;
};
template <class T>
concept HasTrackerName = requires(const T& tracker) {
    { tracker.name() } -> std::convertible_to<std::string>;
};

} // namespace detail

namespace track {

/// Requirements of a tracker.
/// - `start`: once in a fit() call, before anything else.
/// - `rewind`: the run has resumed, possibly in the same process, and lines after `position` are
///   invalid: they will be written again, with different values. Returns the position, at most
///   `position`, up to which the tracker has stored lines; the next line follows it. A process that
///   was killed, or whose tracker lagged, has stored fewer, so derive the result from stored data.
///   `{}`: all lines are written again.
/// - `write`: the next line. It may be buffered until finish(), as long as rewind() accounts for
///   that.
/// - `finish`: the run has ended or paused. Has some seconds. May take an Ending.
///
/// Optional: `std::string name() const`, for messages; `std::string output() const`, the file or
/// directory below RunInfo::directory that it writes; `void flush()`, for batching lines: called
/// when no further line is available, or after many lines; no line follows until it returns.
template <class T>
concept Tracker = std::movable<T> && detail::HasStart<T> && detail::HasRewind<T> &&
    detail::HasWriteLine<T> && detail::HasFinish<T>;

/// Explains why `T` is not a tracker: one sentence for each unmet requirement.
template <class T>
struct ExplainTracker {
    static_assert(std::movable<T>, "rtrain: Tracker not met: the type must be movable [RT-V1]");
    static_assert(detail::HasStart<T>, "rtrain: Tracker not met: missing member "
                                       "`void start(const rtrain::track::RunInfo& info)` [RT-V2]");
    static_assert(detail::HasRewind<T>,
                  "rtrain: Tracker not met: missing member "
                  "`rtrain::track::Position rewind(rtrain::track::Position position)` [RT-V3]");
    static_assert(detail::HasWriteLine<T>, "rtrain: Tracker not met: missing member "
                                           "`void write(const rtrain::track::Line& line)` [RT-V4]");
    static_assert(detail::HasFinish<T>,
                  "rtrain: Tracker not met: missing member `void finish()` [RT-V5]");
};

/// A type-erased tracker. Copies are cheap and share it.
class AnyTracker {
public:
    template <class T>
    requires(!std::same_as<T, AnyTracker> && !std::same_as<T, std::vector<AnyTracker>> &&
             std::is_class_v<T>) AnyTracker(T tracker) { // NOLINT(google-explicit-constructor)
        if constexpr (Tracker<T>) {
            held_ = std::make_shared<Model<T>>(std::move(tracker));
        } else {
            static_cast<void>(ExplainTracker<T>{});
        }
    }

    void start(const RunInfo& info) const { held_->start(info); }
    [[nodiscard]] Position rewind(Position position) const { return held_->rewind(position); }
    void write(const Line& line) const { held_->write(line); }
    void flush() const { held_->flush(); }
    void finish(Ending ending) const { held_->finish(ending); }
    /// Number of lines between two calls of flush().
    [[nodiscard]] int lines_together() const { return held_->lines_together(); }
    /// For messages; "a tracker" if it has no name.
    [[nodiscard]] std::string name() const { return held_->name(); }
    /// Empty if it has none.
    [[nodiscard]] std::string output() const { return held_->output(); }

    /// Acquires the tracker for the caller. False while another thread holds it, such as one that
    /// is stuck in it.
    [[nodiscard]] bool take() const noexcept { return !held_->taken.test_and_set(); }
    /// Releases the tracker after take().
    void give_back() const noexcept { held_->taken.clear(); }

private:
    struct Interface {
        virtual ~Interface() = default;
        virtual void start(const RunInfo& info) = 0;
        virtual Position rewind(Position position) = 0;
        virtual void write(const Line& line) = 0;
        virtual void flush() = 0;
        virtual void finish(Ending ending) = 0;
        [[nodiscard]] virtual int lines_together() const = 0;
        [[nodiscard]] virtual std::string name() const = 0;
        [[nodiscard]] virtual std::string output() const = 0;
        std::atomic_flag taken;
    };
    template <class T>
    struct Model final : Interface {
        explicit Model(T given) : tracker(std::move(given)) {}
        void start(const RunInfo& info) override { tracker.start(info); }
        Position rewind(Position position) override { return tracker.rewind(position); }
        void write(const Line& line) override { tracker.write(line); }
        void flush() override {
            if constexpr (detail::HasFlush<T>) {
                tracker.flush();
            }
        }
        void finish([[maybe_unused]] Ending ending) override {
            if constexpr (detail::HasFinishByEnding<T>) {
                tracker.finish(ending);
            } else {
                tracker.finish();
            }
        }
        [[nodiscard]] int lines_together() const override { return detail::HasFlush<T> ? 100 : 1; }
        [[nodiscard]] std::string name() const override {
            if constexpr (detail::HasTrackerName<T>) {
                return tracker.name();
            } else {
                return "a tracker";
            }
        }
        [[nodiscard]] std::string output() const override {
            if constexpr (detail::HasOutput<T>) {
                return tracker.output();
            } else {
                return "";
            }
        }
        T tracker;
    };

    std::shared_ptr<Interface> held_;
};

} // namespace track
} // namespace rtrain
