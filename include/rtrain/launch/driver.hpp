// SPDX-License-Identifier: Apache-2.0
/// @file
/// Driver: a process that waits for its ranks. It owns the io_context, the signals of this process
/// and the logs of the ranks; its Supervisor owns the run (launch/supervise/supervisor.hpp). The
/// driver of a fit() call is a FitDriver (launch/fit_driver.hpp). A program may have several.
#pragma once

#include <rtrain/base/failure.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/console/screen.hpp>
#include <rtrain/journal/rank_logs.hpp>
#include <rtrain/launch/supervise/supervisor.hpp>
#include <rtrain/process/preemption/preemption_signals.hpp>
#include <rtrain/process/preemption/saved_signal_handlers.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::launch {

/// The same task, whose ranks' lines go to `logs`, too, which outlive it; each start begins new
/// ones.
[[nodiscard]] inline Task logged(Task task, track::RankLogs& logs) {
    task.prepare = [&logs, prepare = std::move(task.prepare)](const LaunchRequest& start) {
        logs.begin();
        return prepare(start);
    };
    task.heard = [&logs, heard = std::move(task.heard)](OutputStream stream, const RankLine& line) {
        logs.add(line.rank, stream, line.text);
        if (heard) {
            heard(stream, line);
        }
    };
    task.on_restart = [&logs, on_restart = std::move(task.on_restart)] {
        on_restart();
        logs.begin();
    };
    task.on_run = [&logs, on_run = std::move(task.on_run)](const std::string& run) {
        on_run(run);
        logs.begin();
    };
    return task;
}

struct DriverOptions {
    Task task;
    const ScalingConfig& scaling;
    const FailureConfig& failure;
    track::RankLogs* logs = nullptr; ///< receive the ranks' output, unless null
    /// Called after all ranks have exited: from then on, a signal may end this program.
    std::function<void()> when_over = [] {};
};

/// Runs a Task on ranks until they have exited. Signals are this driver's from its construction to
/// its destruction, in whichever thread it runs.
class Driver {
public:
    explicit Driver(DriverOptions options)
        : logs_(options.logs), notice_(options.failure.preemption_notice),
          when_over_(std::move(options.when_over)),
          handlers_(
              process::SavedSignalHandlers::shared({SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGCHLD})),
          signals_(io_),
          supervisor_(io_,
                      options.logs == nullptr ? std::move(options.task)
                                              : logged(std::move(options.task), *options.logs),
                      options.scaling, options.failure, [this](RunEnd end) {
                          end_ = std::move(end);
                          io_.stop();
                      }) {
        for (const int signal : handlers_->heeded()) {
            if (signal != SIGCHLD) {
                signals_.add(signal);
            }
        }
        ::signal(SIGCHLD, SIG_DFL); // only the driver may call waitpid() for its children
    }
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    /// Gives the ranks a call: see Supervisor::call(). Thread-safe.
    void call(event::Call call) {
        boost::asio::post(io_, [this, call = std::move(call)] { supervisor_.call(call); });
    }

    /// Returns the end of the run, after all ranks have exited. A signal that ends this program is
    /// raised again. Throws std::bad_alloc; then the destructor kills the ranks.
    RunEnd run() {
        const SaysOnScreen on_screen;
        listen();
        const PreemptionPoller notices(
            notice_, [this] { boost::asio::post(io_, [this] { supervisor_.make_room(); }); });
        supervisor_.start();
        io_.run();
        if (fatal_signal_) {
            console::say("ended by signal %d (%s) without saving; run the same command to "
                         "resume from the newest checkpoint",
                         *fatal_signal_, ::strsignal(*fatal_signal_));
        }
        console::Screen::current().take_off();
        wait_for_reader();
        if (logs_ != nullptr) {
            logs_->close();
        }
        when_over_();
        if (fatal_signal_) {
            ::signal(*fatal_signal_, SIG_DFL);
            ::raise(*fatal_signal_);
        }
        return *end_;
    }

private:
    using Clock = std::chrono::steady_clock;

    /// While it exists, messages of this process never wait for a reader, such as a stopped pager:
    /// ranks and signals need the driver.
    class SaysOnScreen {
    public:
        SaysOnScreen() noexcept {
            if (count++ == 0) {
                console::line_taker = [](const std::string& line) {
                    console::Screen::current().say(line);
                };
            }
        }
        SaysOnScreen(const SaysOnScreen&) = delete;
        SaysOnScreen& operator=(const SaysOnScreen&) = delete;
        ~SaysOnScreen() {
            if (--count == 0) {
                console::line_taker = nullptr;
            }
        }

    private:
        static inline std::atomic<int> count{0};
    };

    void listen() {
        signals_.async_wait([this](const boost::system::error_code& error, int signal) {
            if (error) {
                return;
            }
            has_heard_ = true;
            if (signal == SIGHUP || !may_make_room(signal)) {
                fatal_signal_ = signal;
                supervisor_.end({.kind = Failure::Kind::configuration,
                                 .code = "RT-L2",
                                 .message = "a signal ended the driver"});
            } else {
                first_signal_ = first_signal_.value_or(Clock::now());
                supervisor_.make_room();
            }
            if (!io_.stopped()) {
                listen();
            }
        });
    }

    /// Waits until the driver's messages are read. A terminal may be stopped, and after a signal
    /// there may be no reader: then at most 2 s.
    void wait_for_reader() {
        console::Screen& screen = console::Screen::current();
        constexpr std::chrono::milliseconds often{100};
        constexpr std::chrono::seconds patience{2};
        has_heard_ = fatal_signal_ || screen.is_terminal();
        for (auto until = Clock::now() + patience;
             !screen.drain(often) && !(has_heard_ && Clock::now() > until);) {
            io_.restart();
            io_.poll(); // signals
        }
    }

    /// A job manager may send the same signal twice. So may a program that forwards Ctrl-C, but
    /// faster than a person presses it again.
    [[nodiscard]] bool may_make_room(int signal) const {
        const std::chrono::milliseconds echo(signal == SIGINT ? 100 : 1000);
        return !first_signal_ || Clock::now() - *first_signal_ < echo;
    }

    track::RankLogs* logs_;
    std::function<bool()> notice_;
    std::function<void()> when_over_;
    std::optional<Clock::time_point> first_signal_; ///< the one that preempted the run
    std::optional<int> fatal_signal_;
    bool has_heard_ = false; ///< stops waiting for the reader
    std::optional<RunEnd> end_;
    boost::asio::io_context io_;
    /// Restores the handlers after the set is gone.
    std::shared_ptr<const process::SavedSignalHandlers> handlers_;
    boost::asio::signal_set signals_;
    Supervisor supervisor_;
};

} // namespace rtrain::launch
