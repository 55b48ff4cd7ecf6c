// SPDX-License-Identifier: Apache-2.0
/// @file
/// A tracker: what shows the reports of a run to people, in files or on a server. track/csv.hpp,
/// track/json_lines.hpp and track/tensorboard.hpp are some; any type that meets the concept will
/// do.
///
/// A tracker works on rank 0, in a thread of its own, behind result.json: training never waits for
/// it, and what it could not take yet lies there. All its members are called from that thread. One
/// that throws is called again with the same a while later, and the run goes on.
/// Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/config/run_info.hpp>

#include <boost/json/object.hpp>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <filesystem>
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
    bool is_step = false;    ///< of worker.log(), not of a report
    std::int64_t number = 0; ///< of the report or step, from 1
    double time_s = 0;       ///< when it was made, in seconds since 1970
    const Config& values;    ///< metrics, and for a report the fields that rtrain fills in
    std::string_view text;   ///< the same as it is in the log, one line of JSON without its end
};

/// Why nothing follows.
enum class Ending : unsigned char {
    finished, ///< the run is done
    paused,   ///< the run has made room, and goes on when the same command is started again
    failed    ///< another start may go on with it
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

/// What every tracker offers.
/// - `start`: once in a fit() call, before anything else.
/// - `rewind`: the run was taken up, also anew in the same process, and what is behind `position`
///   does not count any more: it will come again, with other values. Returns how far the tracker
///   has the rest, not behind `position`; lines go on from there. A process that was killed, or
///   that is behind, has less, so what is returned comes from what the tracker keeps. `{}`: all
///   comes again.
/// - `write`: the next line. It may be kept back until finish(), as long as rewind() knows.
/// - `finish`: the run has come to its end, or to a pause. Has some seconds. May take an Ending.
///
/// Optional: `std::string name() const`, for messages; `std::string output() const`, the file or
/// directory below RunInfo::directory that it writes; `void flush()`, to have lines together: it is
/// called when no further line is at hand, or many have been written, and until it returns none
/// follows.
template <class T>
concept Tracker = std::movable<T> && detail::HasStart<T> && detail::HasRewind<T> &&
    detail::HasWriteLine<T> && detail::HasFinish<T>;

/// Why `T` is no tracker: one sentence for each unmet requirement.
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

/// Any tracker, chosen at run time. Copies are cheap and share it.
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
    /// How many lines it gets between two calls of flush().
    [[nodiscard]] int lines_together() const { return held_->lines_together(); }
    /// For people; "a tracker" when it has none.
    [[nodiscard]] std::string name() const { return held_->name(); }
    /// Empty when it has none.
    [[nodiscard]] std::string output() const { return held_->output(); }

    /// For whoever calls it: false while another does, such as a thread that never came back from
    /// it.
    [[nodiscard]] bool take() const noexcept { return !held_->taken.test_and_set(); }
    /// After take(): it is free again.
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
