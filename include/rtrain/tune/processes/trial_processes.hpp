// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrialProcesses: the processes that run the trials of a trainer. Each runs trial after trial
/// until a failure. A trial that no idle process fits, or that follows a failure, gets a new one.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/tune/processes/trial_process.hpp>
#include <rtrain/tune/threads/trial.hpp>

#include <boost/json/array.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune {

class TrialProcesses {
public:
    explicit TrialProcesses(TrialLaunch launch) : launch_(std::move(launch)) {}
    TrialProcesses(const TrialProcesses&) = delete;
    TrialProcesses& operator=(const TrialProcesses&) = delete;

    /// Returns when the trial's run has ended; throws Error if it has failed. Several threads may
    /// call it, each with a different place.
    void run(Trial& trial) {
        const std::string kind = kind_of(trial);
        std::int64_t known = trial.reports() - trial.assignment().base_reports;
        int lost = 0;
        for (auto process = take(kind);; process.reset()) {
            if (!process) {
                process = std::make_unique<TrialProcess>(launch_, next_name());
            }
            try {
                if (process->run(trial, known)) {
                    keep(kind, std::move(process));
                    return;
                }
            } catch (const ProcessLost&) { // the run resumes from its newest checkpoint
                if (trial.should_stop()) {
                    return;
                }
                if (launch_.max_failures >= 0 && lost >= launch_.max_failures) {
                    throw;
                }
                ++lost;
            }
        }
    }

private:
    /// Trials of the same kind can run in the same ranks.
    static std::string kind_of(const Trial& trial) {
        const auto* const scaling = trial.config().if_contains("scaling");
        const std::vector<int>& gpus = trial.gpus();
        const std::vector<int>& cores = trial.place().cores;
        return json::serialize({{"gpus", boost::json::array(gpus.begin(), gpus.end())},
                                {"cores", boost::json::array(cores.begin(), cores.end())},
                                {"scaling", scaling != nullptr ? *scaling : boost::json::value()}});
    }

    /// An idle process of that kind. Null: none; then another idle one ends to free its place.
    std::unique_ptr<TrialProcess> take(const std::string& kind) {
        Idle taken;
        {
            const std::lock_guard lock(mutex_);
            auto found = std::find_if(idle_.begin(), idle_.end(),
                                      [&](const Idle& idle) { return idle.first == kind; });
            found = found == idle_.end() ? idle_.begin() : found;
            if (found == idle_.end()) {
                return nullptr;
            }
            taken = std::move(*found);
            idle_.erase(found);
        }
        return taken.first == kind ? std::move(taken.second) : nullptr;
    }

    void keep(const std::string& kind, std::unique_ptr<TrialProcess> process) {
        if (process->is_ready()) {
            const std::lock_guard lock(mutex_);
            idle_.emplace_back(kind, std::move(process));
        }
    }

    std::string next_name() {
        const std::lock_guard lock(mutex_);
        return "trials-" + std::to_string(started_++);
    }

    using Idle = std::pair<std::string, std::unique_ptr<TrialProcess>>;
    TrialLaunch launch_;
    std::mutex mutex_; ///< guards the members below
    std::vector<Idle> idle_;
    int started_ = 0;
};

} // namespace rtrain::tune
