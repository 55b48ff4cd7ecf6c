// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrackerThread: delivers the lines of result.json to one tracker. The log is the queue: a report
/// only announces its new length. So trackers do not wait for each other's servers, memory is
/// constant however far a tracker lags behind, and undelivered lines are never lost.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/process/preemption/signals_blocked.hpp>
#include <rtrain/track/lines/log_cursor.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <sys/resource.h>

namespace rtrain::track {

/// The ends of the report log and the step log.
using LogEnds = std::array<LogEnd, 2>;
inline constexpr std::size_t report_log = 0;
inline constexpr std::size_t step_log = 1;

namespace internal {

/// The state of a tracker's thread. The thread owns it and may outlive the TrackerThread, because a
/// tracker may block forever.
class Delivery {
public:
    using Clock = std::chrono::steady_clock;

    explicit Delivery(AnyTracker tracker) : tracker_(std::move(tracker)), name_(tracker_.name()) {}

    /// The run has resumed; its logs end at `ends`. The tracker must rewind to `to`, which may be
    /// before the valid position; then `rewound` is called.
    void resume(const RunInfo& info, const LogEnds& ends, Position to,
                std::function<void()> rewound) {
        tell([&] {
            start_ = {info, ends, to, std::move(rewound)};
            orders_.logs = ends;
            ++orders_.start;
        });
    }

    /// One of the logs has grown.
    void grow(std::size_t log, const LogEnd& end) {
        tell([&] { orders_.logs[log] = end; });
    }

    /// The run has ended.
    void end(Ending ending) {
        tell([&] {
            orders_.ends = true;
            orders_.ending = ending;
        });
        hurry_.notify_one();
    }

    /// Waits for the thread until `limit`; true if it has ended. Logs what the tracker is missing.
    [[nodiscard]] bool wait_end(Clock::time_point limit) {
        std::unique_lock lock(mutex_);
        const bool ended = ended_.wait_until(lock, limit, [&] { return has_ended_; });
        is_given_up_ = !ended;
        if (!ended || lacks_something_) {
            say_what_is_missing(ended);
        }
        return ended;
    }

    void run() noexcept {
        static_cast<void>(::setpriority(PRIO_PROCESS, 0, niceness)); // only this thread, on Linux
        const bool mine = tracker_.take();
        if (!mine) {
            console::warn("%s has not returned from an earlier fit() call, and is skipped in "
                          "this run",
                          name_.c_str());
        }
        while (mine && work_once()) {
        }
        if (mine) {
            tracker_.give_back();
        }
        const std::scoped_lock lock(mutex_);
        has_ended_ = true;
        ended_.notify_all();
    }

private:
    static constexpr int niceness = 10; ///< training has priority
    /// Minimum interval between two reads of the log, so that frequent reports do not wake the
    /// thread.
    static constexpr std::chrono::milliseconds pause{50};
    static constexpr std::chrono::milliseconds longest_pause{5000};

    struct Start {
        RunInfo info;
        LogEnds logs{};
        Position to;
        std::function<void()> rewound;
    };
    struct Orders {
        std::uint64_t start = 0; ///< number of calls of resume()
        LogEnds logs{};
        bool ends = false;
        Ending ending = Ending::paused;
    };

    template <class Change>
    void tell(Change&& change) {
        const std::scoped_lock lock(mutex_);
        change();
        if (sleeps_) {
            work_.notify_one();
        }
    }

    /// False after the last pass.
    bool work_once() noexcept {
        Orders orders;
        {
            std::unique_lock lock(mutex_);
            sleeps_ = true;
            work_.wait(lock, [&] {
                return failures_ > 0 || orders_.ends || orders_.start != taken_up_ ||
                       (taken_up_ != 0 && orders_.logs != delivered());
            });
            sleeps_ = false;
            orders = orders_;
        }
        const bool done = deliver(orders);
        std::unique_lock lock(mutex_);
        if (orders.ends || is_given_up_) {
            lacks_something_ = !done;
            return false;
        }
        const auto rest = done ? pause : std::min(longest_pause, pause * (1 << failures_));
        hurry_.wait_for(lock, rest, [&] { return orders_.ends; });
        return true;
    }

    /// True if the tracker has all lines.
    bool deliver(const Orders& orders) noexcept {
        if (orders.start == 0) { // ended before it started
            return true;
        }
        try {
            if (orders.start != taken_up_) {
                resume(orders.start);
            }
            for (std::size_t i = 0; i < lanes_.size(); ++i) {
                lanes_[i].deliver(
                    orders.logs[i], [this](const Line& line) { write(line); },
                    [this] { return !is_over(); });
            }
            if (!is_over()) {
                flush();
            }
            if (orders.ends && !is_over()) {
                tracker_.finish(orders.ending);
            }
            failures_ = 0;
            return true;
        } catch (const std::exception& error) {
            failed(error.what());
        } catch (...) {
            failed(rtrain::detail::thrown_object().c_str());
        }
        return false;
    }

    void resume(std::uint64_t number) {
        Start start;
        {
            const std::scoped_lock lock(mutex_);
            start = start_;
        }
        if (!started_) {
            tracker_.start(start.info);
            started_ = true;
        }
        const Position at = tracker_.rewind(start.to);
        start.rewound();
        lanes_[report_log].resume(start.info.directory, at.iteration, start.logs[report_log]);
        lanes_[step_log].resume(start.info.directory, at.step, start.logs[step_log]);
        taken_up_ = number;
        lines_kept_ = 0;
        note_reached();
    }

    void write(const Line& line) {
        if (lines_kept_ >= tracker_.lines_together()) {
            flush();
        }
        tracker_.write(line);
        ++lines_kept_;
    }

    /// Flushes: the tracker has stored all lines so far.
    void flush() {
        tracker_.flush();
        lines_kept_ = 0;
        note_reached();
    }

    void note_reached() {
        const std::scoped_lock lock(mutex_);
        reached_ = lanes_[report_log].at();
    }

    [[nodiscard]] LogEnds delivered() const {
        return {lanes_[report_log].delivered(), lanes_[step_log].delivered()};
    }

    /// True if the rest of the log is obsolete: the run has resumed again, or the caller has given
    /// up.
    [[nodiscard]] bool is_over() const {
        const std::scoped_lock lock(mutex_);
        return orders_.start != taken_up_ || is_given_up_;
    }

    void failed(const char* what) noexcept {
        failures_ = std::min(failures_ + 1, 10);
        if (!std::exchange(has_failed_, true)) {
            console::warn(
                "%s may be missing data from this run: %s; the run continues and retries, "
                "data missing at the end is reported",
                name_.c_str(), what);
        }
    }

    void say_what_is_missing(bool ended) const noexcept {
        const auto missing = static_cast<long long>(orders_.logs[report_log].number - reached_);
        if (missing > 0) {
            console::warn(
                "%s%s and lacks the last %lld of this run's %lld reports, which are in %s",
                name_.c_str(), ended ? " has failed" : " takes too long", missing,
                static_cast<long long>(orders_.logs[report_log].number), results_file);
        } else {
            console::warn("%s has all reports but %s", name_.c_str(),
                          ended ? "has failed to finish" : "takes too long to finish");
        }
    }

    AnyTracker tracker_;
    std::string name_;

    mutable std::mutex mutex_;
    std::condition_variable work_;  ///< wakes the idle thread
    std::condition_variable hurry_; ///< wakes the pausing thread
    std::condition_variable ended_;
    Start start_;
    Orders orders_;
    std::int64_t reached_ = 0;
    bool sleeps_ = false;
    bool has_ended_ = false;
    bool is_given_up_ = false;
    bool lacks_something_ = false;

    // Used only by the thread.
    std::uint64_t taken_up_ = 0;
    std::array<LogCursor, 2> lanes_{LogCursor(results_file, iteration_field, false),
                                    LogCursor(steps_file, step_field, true)};
    int lines_kept_ = 0; ///< by the tracker, since flush()
    int failures_ = 0;   ///< consecutive
    bool started_ = false;
    bool has_failed_ = false;
};

} // namespace internal

class TrackerThread {
public:
    using Clock = internal::Delivery::Clock;

    explicit TrackerThread(AnyTracker tracker)
        : delivery_(std::make_shared<internal::Delivery>(std::move(tracker))) {
        const launch::SignalsBlocked blocked;
        thread_ = rtrain::process::Thread([delivery = delivery_] { delivery->run(); });
    }
    TrackerThread(TrackerThread&&) noexcept = default;
    TrackerThread& operator=(TrackerThread&&) = delete;
    ~TrackerThread() {
        if (thread_.joinable()) {
            delivery_->end(Ending::paused);
            wait_until(Clock::now());
        }
    }

    void resume(const RunInfo& info, const LogEnds& ends, Position to,
                std::function<void()> rewound) {
        delivery_->resume(info, ends, to, std::move(rewound));
    }
    void grow(std::size_t log, const LogEnd& end) { delivery_->grow(log, end); }
    void end(Ending ending) { delivery_->end(ending); }

    /// After end(): waits for the thread, and detaches it at `limit`.
    void wait_until(Clock::time_point limit) {
        if (delivery_->wait_end(limit)) {
            thread_.join();
        } else {
            thread_.detach();
        }
    }

private:
    std::shared_ptr<internal::Delivery> delivery_;
    rtrain::process::Thread thread_;
};

} // namespace rtrain::track
