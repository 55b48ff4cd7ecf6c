// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrialRun: the run of a program for one trial of a search.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/text/duration.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/config/stop.hpp>
#include <rtrain/journal/observer.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/launch/driver.hpp>
#include <rtrain/launch/supervise/lifetime.hpp>
#include <rtrain/launch/supervise/supervisor.hpp>
#include <rtrain/program/process/preload_server.hpp>
#include <rtrain/program/program_options.hpp>
#include <rtrain/program/program_run.hpp>
#include <rtrain/tune/base/metric.hpp>
#include <rtrain/tune/controller/plan.hpp>
#include <rtrain/tune/threads/trial.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::tune::internal {

/// Notifies the search of the checkpoints of a trial's run.
class TrialStates final : public track::Observer {
public:
    explicit TrialStates(const Trial& trial) : trial_(trial) {}
    [[nodiscard]] std::string name() const override { return "the search"; }
    void saved(const track::Saved& event) override {
        trial_.saved({.name = event.checkpoint,
                      .reports = track::number_of(event.line),
                      .time_s = number_at(event.line, "time_total_s").value_or(0)});
    }

private:
    const Trial& trial_;
};

/// The thread of the trial creates and destroys it, and waits. All else happens in the thread that
/// runs the io_context: the Supervisor, and reports to the search.
class TrialRun {
public:
    /// `cleanup_s`: time for the program to end after the search has stopped the trial; 0: no
    /// limit. All arguments but `options` and `preload` outlive this object. Throws what ProgramRun
    /// throws.
    TrialRun(boost::asio::io_context& io, Trial& trial, ProgramOptions options,
             std::shared_ptr<program::PreloadService> preload, double cleanup_s)
        : io_(io), trial_(trial), known_(trial.reports() - trial.assignment().base_reports),
          cleanup_s_(cleanup_s), run_(with_verdicts(std::move(options)), std::move(preload)) {
        run_.add(std::make_shared<TrialStates>(trial));
    }
    TrialRun(const TrialRun&) = delete;
    TrialRun& operator=(const TrialRun&) = delete;

    /// Starts the run. `over` is called at its end. Call in the thread that runs the io_context.
    void start(std::function<void()> over) {
        launch::Task task = launch::logged(run_.task(), run_.logs());
        task.name = trial_.name();
        task.may_restart = [this] { return !trial_.should_stop(); };
        active_.emplace(io_, std::move(task), run_.options(),
                        [this, over = std::move(over)](launch::RunEnd end) {
                            over();
                            active_.reset();
                            end_.set_value(std::move(end));
                        });
        active_->supervisor.start();
    }

    /// Kills the ranks. `why`: thrown by wait(). Call in the thread that runs the io_context.
    void abort(std::exception_ptr why) {
        active_.reset();
        end_.set_exception(std::move(why));
    }

    /// Waits for the end of the run. Throws Error if it has failed and was not stopped.
    void wait() {
        launch::RunEnd end = end_.get_future().get();
        run_.logs().close();
        if (trial_.should_stop()) {
            end = {.result = ""};
        }
        if (const auto failure = run_.end(end).failure) {
            program::throw_failure(*failure);
        }
    }

    /// The number of reports of this run that the search has received.
    [[nodiscard]] std::int64_t reports() const noexcept { return known_; }

private:
    /// Used by the thread that runs the io_context.
    struct Active {
        Active(boost::asio::io_context& io, launch::Task task, const ProgramOptions& options,
               std::function<void(launch::RunEnd)> over)
            : supervisor(io, std::move(task), options.scaling, options.run.failure,
                         std::move(over)),
              cleanup(io) {}

        launch::Supervisor supervisor;
        boost::asio::steady_timer cleanup;
        launch::Lifetime lifetime{};
    };

    /// The same options, with the search as the only stop condition.
    ProgramOptions with_verdicts(ProgramOptions options) {
        options.run.stop = {stop::Condition([this](const Config& line) { return hear(line); })};
        return options;
    }

    /// Passes a report on to the search; a resumed run repeats some. True if the trial stops here.
    bool hear(const Config& line) {
        const std::int64_t iteration = track::number_of(line);
        if (iteration > known_) {
            known_ = iteration;
            Config metrics = line;
            metrics.erase("config");
            if (!trial_.report(std::move(metrics))) {
                clean_up_later();
            }
        }
        return trial_.should_stop();
    }

    void clean_up_later() {
        if (cleanup_s_ == 0) {
            return;
        }
        active_->cleanup.expires_after(rtrain::detail::duration_of(cleanup_s_));
        active_->cleanup.async_wait(
            active_->lifetime.guard([this](const boost::system::error_code& error) {
                if (!error) {
                    console::warn("trial %s has not returned %g s after the search stopped it; its "
                                  "processes are ended",
                                  trial_.id().c_str(), cleanup_s_);
                    active_->supervisor.end({.message = "the search has stopped the trial"});
                }
            }));
    }

    boost::asio::io_context& io_;
    Trial& trial_;
    std::int64_t known_;
    double cleanup_s_;
    program::ProgramRun run_;
    std::optional<Active> active_; ///< while it runs
    std::promise<launch::RunEnd> end_;
};

} // namespace rtrain::tune::internal
