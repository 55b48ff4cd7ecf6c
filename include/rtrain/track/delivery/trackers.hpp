// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trackers: passes a run's events to its trackers.
#pragma once

#include <rtrain/config/tracker.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/observer.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/track/delivery/pending_rewind.hpp>
#include <rtrain/track/delivery/tracker_threads.hpp>
#include <rtrain/track/files/csv.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::track {

class Trackers : public Observer {
public:
    /// Time limit for all trackers to finish.
    static constexpr std::chrono::seconds patience{8};
    /// Time limit if the run has failed, and may wait for its next start.
    static constexpr std::chrono::seconds patience_in_failure{2};

    /// Fills progress.csv in addition to `trackers`.
    Trackers(std::vector<AnyTracker> trackers, Config config)
        : threads_(std::move(trackers), std::make_shared<PendingRewind>()),
          config_(std::move(config)) {}

    [[nodiscard]] std::string name() const override { return "the trackers"; }

    void started(const Started& event) override {
        const RunInfo info{.name = event.name,
                           .directory = event.logs,
                           .location = event.location,
                           .config = config_,
                           .attempt = event.attempt,
                           .position = {.iteration = event.iteration, .step = event.step},
                           .resumed = event.resumed};
        const LogEnds ends{{{event.log_size, event.iteration}, {event.steps_size, event.step}}};
        table_.resume(info, ends);
        threads_.resume(info, ends);
    }
    void reported(const Reported& event) override {
        const LogEnd end{event.log_size, number_of(event.line)};
        table_.grow(report_log, end);
        threads_.grow(report_log, end);
    }
    void stepped(const Stepped& event) override {
        threads_.grow(step_log, {event.steps_size, event.step});
    }
    void closing(const Closing& event) override {
        finish(patience, event.pauses ? Ending::paused : Ending::finished);
    }
    void ended(const Ended& event) override {
        if (event.how == Ended::How::failed) { // otherwise closing() has finished them
            finish(patience_in_failure, Ending::failed);
        }
    }

private:
    void finish(std::chrono::seconds limit, Ending ending) {
        const auto end = TrackerThread::Clock::now() + limit;
        threads_.finish(end, ending);
        table_.finish(end, ending);
    }

    TrackerThreads table_{{Csv(progress_file)}};
    TrackerThreads threads_;
    Config config_;
};

} // namespace rtrain::track
