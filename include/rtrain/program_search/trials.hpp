// SPDX-License-Identifier: Apache-2.0
/// @file
/// ProgramTrials: runs the trials of a search over a program. Their Supervisors share a thread, and
/// their ranks a preload server.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/program/process/preload_server.hpp>
#include <rtrain/program/program_options.hpp>
#include <rtrain/program_search/trial_run.hpp>
#include <rtrain/storage/file/process_directory.hpp>
#include <rtrain/storage/file/temporary.hpp>
#include <rtrain/tune/threads/trial.hpp>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <exception>
#include <memory>
#include <set>
#include <utility>

namespace rtrain::tune {

class ProgramTrials {
public:
    /// `cleanup_s`: TuneConfig::force_trial_cleanup_s.
    /// `needs_reports`: the search has a metric.
    ProgramTrials(double cleanup_s, bool needs_reports)
        : cleanup_s_(cleanup_s), needs_reports_(needs_reports), thread_([this] { work(); }) {}
    ProgramTrials(const ProgramTrials&) = delete;
    ProgramTrials& operator=(const ProgramTrials&) = delete;
    ~ProgramTrials() { busy_.reset(); }

    /// Returns when the trial's run has ended. Throws Error if it has failed, ConfigError [RT-U115]
    /// if it has reported nothing.
    /// Several threads may call it, each with a different trial.
    void run(Trial& trial, ProgramOptions options) {
        internal::TrialRun run(io_, trial, std::move(options), preload_, cleanup_s_);
        boost::asio::post(io_, [this, &run] {
            try {
                running_.insert(&run);
                run.start([this, &run] { running_.erase(&run); });
            } catch (...) {
                running_.erase(&run);
                run.abort(std::current_exception());
            }
        });
        run.wait();
        if (needs_reports_ && run.reports() == 0) {
            throw ConfigError("RT-U115", detail::concat("the program of trial ", trial.id(),
                                                        " has ended without a report; a script "
                                                        "calls rtrain.report() with the metrics of "
                                                        "each epoch"));
        }
    }

private:
    /// The ranks and the preload server end with this thread.
    void work() {
        for (;;) {
            try {
                io_.run();
                return;
            } catch (...) { // no memory; all other errors end only their run
                for (internal::TrialRun* const run : std::exchange(running_, {})) {
                    run->abort(std::current_exception());
                }
            }
        }
    }

    double cleanup_s_;
    bool needs_reports_;
    storage::ProcessDirectory directory_{storage::temporary_directory(), "rtrain"};
    std::shared_ptr<program::PreloadService> preload_ =
        std::make_shared<program::PreloadService>(directory_.path());
    boost::asio::io_context io_;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> busy_{
        io_.get_executor()};
    std::set<internal::TrialRun*> running_; ///< used by the thread only
    process::Thread thread_;
};

} // namespace rtrain::tune
