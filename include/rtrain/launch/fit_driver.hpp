// SPDX-License-Identifier: Apache-2.0
/// @file
/// FitDriver: the driver of a fit() call. A program started without a launcher launches `mpirun` on
/// itself, and its ranks replay main() up to this call (launch/session.hpp).
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/console/screen.hpp>
#include <rtrain/journal/rank_logs.hpp>
#include <rtrain/launch/calls/call.hpp>
#include <rtrain/launch/calls/call_board.hpp>
#include <rtrain/launch/control/events.hpp>
#include <rtrain/launch/driver.hpp>
#include <rtrain/launch/fit_outcome.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/launch/supervise/program.hpp>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::launch {

struct FitDriverOptions {
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
    /// Calls of main() for the ranks; null: none. Outlives the driver.
    CallBoard* calls = nullptr;
};

/// Launches the ranks for a call, and relaunches them after failures as often as `run.failure`
/// allows.
class FitDriver {
public:
    explicit FitDriver(FitDriverOptions options) : options_(std::move(options)) {}
    FitDriver(const FitDriver&) = delete;
    FitDriver& operator=(const FitDriver&) = delete;

    /// Returns the outcome of the call, after all ranks have exited. See Driver::run().
    FitOutcome run() {
        Session& session = options_.call.session;
        auto directories = session.directory().use();
        Driver driver({.task = task(),
                       .scaling = options_.scaling,
                       .failure = options_.run.failure,
                       .logs = options_.logs,
                       .when_over = [&] { directories.reset(); }});
        const Connection connection(options_.calls, driver);
        const RunEnd end = driver.run();
        FitOutcome ending = end.result ? ending_from(json::parse(*end.result).as_object())
                                       : FitOutcome{.failure = end.failure};
        session.record(options_.call.number, ending);
        return ending;
    }

private:
    /// While it exists, calls go to the ranks of the driver.
    class Connection {
    public:
        Connection(CallBoard* calls, Driver& driver) : calls_(calls) {
            if (calls_ != nullptr) {
                calls_->connect([&driver](const Call& call) { driver.call(event_of(call)); });
            }
        }
        Connection(const Connection&) = delete;
        Connection& operator=(const Connection&) = delete;
        ~Connection() {
            if (calls_ != nullptr) {
                calls_->connect(nullptr);
            }
        }

    private:
        CallBoard* calls_;
    };

    [[nodiscard]] std::optional<event::Call> open_call() const {
        const auto call = options_.calls != nullptr ? options_.calls->open() : std::nullopt;
        return call ? std::optional(event_of(*call)) : std::nullopt;
    }

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
            .on_run = options_.on_run,
            .open_call = [this] { return open_call(); },
            .answered =
                [this](const std::string& answer) {
                    console::Screen::current().take_off();
                    if (options_.calls != nullptr) {
                        options_.calls->answer(answer_from(json::parse(answer).as_object()));
                    }
                }};
    }

    [[nodiscard]] LaunchEnvironment surroundings(const LaunchRequest& start) {
        Session& session = options_.call.session;
        session.forget(options_.call.number);
        session.leave_config(options_.call.number, options_.config);
        LaunchEnvironment given{.variables = session.rank_variables(start.remote),
                                .directory = session.directory().path()};
        given.keeps_input = !given.variables.empty();
        if (!start.remote) {
            given.shared_memory = session.directory().shared_memory();
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

    /// Reports failures that rank 0 has not reported: it reports exceptions.
    void tell_of(const Failure& failure) const {
        using Kind = Failure::Kind;
        if (failure.kind == Kind::died || failure.kind == Kind::hang ||
            failure.kind == Kind::interrupted) {
            options_.tell(failure);
        }
    }

    FitDriverOptions options_;
};

} // namespace rtrain::launch
