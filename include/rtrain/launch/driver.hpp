// SPDX-License-Identifier: Apache-2.0
/// @file
/// The driver: a program started without a launcher launches `mpirun` on itself and waits. It owns
/// the io_context and the signals of this process; its Supervisor owns the run
/// (launch/supervise/supervisor.hpp).
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/console/screen.hpp>
#include <rtrain/journal/rank_logs.hpp>
#include <rtrain/launch/fit_outcome.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/launch/supervise/supervisor.hpp>
#include <rtrain/process/preemption/preemption_signals.hpp>
#include <rtrain/process/preemption/saved_signal_handlers.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>

#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::launch {

struct DriverOptions {
    FitCall call;
    const Config& config; ///< must be the ranks', too
    const ScalingConfig& scaling;
    const RunConfig& run;
    /// Called when processes have died or hung, so that no rank can report it; throws nothing.
    std::function<void(const Failure&)> tell;
    track::RankLogs* logs; ///< receive the ranks' output, unless null
    /// Called when another run begins in ranks that have completed one; sets `config`, `run`,
    /// `tell` and `logs` to those of that run.
    std::function<void(const std::string&)> on_run;
};

/// Launches the ranks for a call, and relaunches them after failures as often as `run.failure`
/// allows.
class Driver {
public:
    explicit Driver(DriverOptions options)
        : options_(std::move(options)), handlers_({SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGCHLD}),
          signals_(io_, SIGCHLD),
          supervisor_(io_, task(), options_.scaling, options_.run.failure, [this](RunEnd end) {
              end_ = std::move(end);
              io_.stop();
          }) {
        for (const int signal : handlers_.heeded()) {
            signals_.add(signal);
        }
    }
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    /// Returns the outcome of the call, after all ranks have exited. A signal that ends this
    /// program is raised again. Throws std::bad_alloc; then the destructor kills the ranks.
    FitOutcome run() {
        const SaysOnScreen on_screen;
        listen();
        const PreemptionPoller notices(options_.run.failure.preemption_notice, [this] {
            boost::asio::post(io_, [this] { supervisor_.make_room(); });
        });
        supervisor_.start();
        io_.run();
        if (fatal_signal_) {
            console::say("ended by signal %d (%s) without saving; run the same command to "
                         "resume from the newest checkpoint",
                         *fatal_signal_, ::strsignal(*fatal_signal_));
        }
        console::Screen::current().take_off();
        wait_for_reader();
        if (options_.logs != nullptr) {
            options_.logs->close();
        }
        options_.call.session.remove_directories(); // a signal may end this program at any time now
        if (fatal_signal_) {
            ::signal(*fatal_signal_, SIG_DFL);
            ::raise(*fatal_signal_);
        }
        FitOutcome ending = end_->result ? ending_from(json::parse(*end_->result).as_object())
                                         : FitOutcome{.failure = end_->failure};
        options_.call.session.record(options_.call.number, ending);
        return ending;
    }

private:
    using Clock = std::chrono::steady_clock;

    /// While it exists, messages of this process never wait for a reader, such as a stopped pager:
    /// ranks and signals need the driver.
    class SaysOnScreen {
    public:
        SaysOnScreen() noexcept {
            console::line_taker = [](const std::string& line) {
                console::Screen::current().say(line);
            };
        }
        SaysOnScreen(const SaysOnScreen&) = delete;
        SaysOnScreen& operator=(const SaysOnScreen&) = delete;
        ~SaysOnScreen() { console::line_taker = nullptr; }
    };

    [[nodiscard]] Task task() {
        return {
            .program = Program::self(),
            .prepare = [this](const LaunchRequest& start) { return surroundings(start); },
            .result = [this] { return options_.call.session.recorded_text(options_.call.number); },
            .keep_result =
                [this](const std::string& ending) {
                    options_.call.session.record_text(options_.call.number, ending);
                },
            .failure_in = &failure_in,
            .without_result = {.kind = Failure::Kind::configuration,
                               .code = "RT-L3",
                               .message = detail::concat(
                                   "the ranks ended without reaching fit() call number ",
                                   options_.call.number + 1,
                                   " of this program; main() must make the same calls "
                                   "in every process")},
            .on_failure = [this](const Failure& failure) { tell_of(failure); },
            .heard =
                [this](OutputStream stream, const RankLine& line) {
                    if (options_.logs != nullptr) {
                        options_.logs->add(line.rank, stream, line.text);
                    }
                },
            .on_restart = [this] { begin_logs(); },
            .on_run =
                [this](const std::string& what) {
                    options_.on_run(what);
                    begin_logs();
                }};
    }

    [[nodiscard]] LaunchEnvironment surroundings(const LaunchRequest& start) {
        begin_logs();
        Session& session = options_.call.session;
        session.forget(options_.call.number);
        session.leave_config(options_.call.number, options_.config);
        LaunchEnvironment given{.variables = session.rank_variables(start.remote),
                                .directory = session.directory()};
        given.keeps_input = !given.variables.empty();
        if (!start.remote) {
            given.shared_memory = session.shared_memory();
        }
        std::string skipped;
        for (const std::string& name : start.skip) {
            skipped += (skipped.empty() ? "" : ",") + name;
        }
        given.variables.merge(std::map<std::string, std::string>{
            {Session::directory_variable, given.directory.string()},
            {Session::fit_variable, std::to_string(options_.call.number)},
            {Session::name_variable, options_.run.name},
            {Session::columns_variable, std::to_string(columns())},
            {Session::skip_variable, skipped}});
        return given;
    }

    /// Width of the terminal; 0: none.
    [[nodiscard]] static int columns() {
        const console::Screen& screen = console::Screen::current();
        return screen.is_terminal() ? screen.columns() : 0;
    }

    /// Parses what ranks have recorded: a failure of training may be retried, others recur at each
    /// start.
    [[nodiscard]] static std::optional<Failure> failure_in(const std::string& result) {
        FitOutcome ending = ending_from(json::parse(result).as_object());
        if (!ending.failure) {
            return std::nullopt;
        }
        Failure& failure = *ending.failure;
        if (ending.tells_of_deaths() || failure.code == "RT-L8") { // found its driver gone
            failure.kind = Failure::Kind::interrupted;
        } else if (failure.kind == Failure::Kind::threw && failure.code != "RT-T1" &&
                   failure.code != "RT-L2") {
            failure.kind = Failure::Kind::configuration;
        }
        return failure;
    }

    void begin_logs() {
        if (options_.logs != nullptr) {
            options_.logs->begin();
        }
    }

    /// Reports failures that rank 0 has not reported: it reports exceptions.
    void tell_of(const Failure& failure) const {
        using Kind = Failure::Kind;
        if (failure.kind == Kind::died || failure.kind == Kind::hang ||
            failure.kind == Kind::interrupted) {
            options_.tell(failure);
        }
    }

    void listen() {
        signals_.async_wait([this](const boost::system::error_code& error, int signal) {
            if (error) {
                return;
            }
            has_heard_ = has_heard_ || signal != SIGCHLD;
            if (signal == SIGCHLD) {
                supervisor_.reap();
            } else if (signal == SIGHUP || !may_make_room(signal)) {
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

    DriverOptions options_;
    std::optional<Clock::time_point> first_signal_; ///< the one that preempted the run
    std::optional<int> fatal_signal_;
    bool has_heard_ = false; ///< stops waiting for the reader
    std::optional<RunEnd> end_;
    boost::asio::io_context io_;
    process::SavedSignalHandlers handlers_; ///< restores the handlers after the set is gone
    boost::asio::signal_set signals_;
    Supervisor supervisor_;
};

} // namespace rtrain::launch
