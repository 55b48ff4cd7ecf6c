// SPDX-License-Identifier: Apache-2.0
/// @file
/// Observer: the interface that receives a run's events. Events are durable before they are
/// reported, unless noted otherwise.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/checkpoint/validation_record.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/console/model_table.hpp>
#include <rtrain/storage/location.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rtrain {

struct Result;

namespace track {

/// A run has started or resumed: reported at its begin, when another start resumes it, and when the
/// training function is called again.
struct Started {
    std::string name;             ///< of the run
    std::string location;         ///< path or URI of its directory
    storage::Location directory;  ///< for observers that write there
    std::string attempt;          ///< unique ID of this start
    bool resumed = false;         ///< resumes from a checkpoint of this run
    std::filesystem::path logs;   ///< directory of result.json and params.json
    std::uint64_t log_size = 0;   ///< bytes of result.json
    std::int64_t step = 0;        ///< number of valid steps of worker.log()
    std::uint64_t steps_size = 0; ///< bytes of steps.jsonl
    /// Number of valid reports. Later ones are moved to superseded.json and will be made again.
    std::int64_t iteration = 0;
    std::string checkpoint;                         ///< the one that it resumes from; "" for none
    std::vector<checkpoint::Committed> checkpoints; ///< all of this run
};

/// A model was prepared for training.
struct Prepared {
    const std::vector<console::ModelPart>& parts; ///< the model itself first
    /// Floating-point operations of this rank's first step, forward and backward; empty until that
    /// step has ended. Call from one thread. Null: not counted.
    std::function<std::optional<double>()> first_step_flops{};
};

/// A line was added to result.json. It is durable when it belongs to a checkpoint.
struct Reported {
    const Config& line;
    bool asks_for_validation = false;
    std::uint64_t log_size = 0; ///< bytes of result.json, including the line
};

/// Steps of worker.log() were added to steps.jsonl.
struct Stepped {
    std::int64_t step = 0;        ///< number of the last step
    std::uint64_t steps_size = 0; ///< bytes of steps.jsonl, including that step
    const Config* line = nullptr; ///< line of the last step
};

/// The metrics that all ranks have reported, after Reported: only if an observer uses them.
struct ReportedByAll {
    const std::vector<Config>& metrics;          ///< by rank
    const std::optional<Checkpoint>& checkpoint; ///< the one made in this report, if committed
};

/// A checkpoint was committed.
struct Saved {
    const std::string& checkpoint;
    const Config& line; ///< line of the report that it was made in, or of the last one before
};

/// The validation of a checkpoint has completed.
struct Validated {
    const std::string& checkpoint;
    const checkpoint::ValidationRecord& record;
};

/// Training failed, and this process is able to report that. Ended or Restarting follows.
struct Failed {
    const std::map<int, std::string>& failures; ///< by rank
};

/// The training function failed, and is about to be called again in these processes.
struct Restarting {
    const std::map<int, std::string>& failures; ///< by rank
    const std::string& what;                    ///< error message about all of them
    const std::string& reason;                  ///< reason that it is called again
    int ranks = 1;                              ///< number of ranks that continue
    bool lost_ranks = false;                    ///< fewer than before
};

/// The run is about to end without a failure.
struct Closing {
    bool pauses = false; ///< it was preempted; the same command resumes it
};

/// The run does not continue by itself.
struct Ended {
    enum class How : unsigned char {
        finished,
        preempted, ///< it was preempted; the same command resumes it
        failed     ///< a driver may start other processes, which then begin with Started
    };
    How how = How::finished;
    std::string message{};          ///< error message of the failure
    const Result* result = nullptr; ///< if it has finished
};

/// Receives the events of a run, on rank 0. Events arrive one at a time, in the order in which they
/// occur, in the thread in which they occur. Training waits meanwhile, so slow work belongs in the
/// observer's own thread. An observer may throw: the run continues, and the observer still receives
/// later events (see Observers).
class Observer {
public:
    Observer() = default;
    Observer(const Observer&) = delete;
    Observer& operator=(const Observer&) = delete;
    virtual ~Observer() = default;

    /// For messages.
    [[nodiscard]] virtual std::string name() const = 0;

    virtual void started(const Started& /*event*/) {}
    virtual void prepared(const Prepared& /*event*/) {}
    virtual void reported(const Reported& /*event*/) {}
    virtual void stepped(const Stepped& /*event*/) {}
    virtual void reported_by_all(const ReportedByAll& /*event*/) {}
    virtual void saved(const Saved& /*event*/) {}
    virtual void validated(const Validated& /*event*/) {}
    virtual void failed(const Failed& /*event*/) {}
    virtual void restarting(const Restarting& /*event*/) {}
    /// After it, the run's logs are copied to a storage service for the last time.
    virtual void closing(const Closing& /*event*/) {}
    virtual void ended(const Ended& /*event*/) {}
};

} // namespace track
} // namespace rtrain
