// SPDX-License-Identifier: Apache-2.0
/// @file
/// Observer: who hears of what happens in a run, and what there is to hear. What is told is durable
/// already, unless it says otherwise.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/store.hpp>
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

/// A run was taken up: when it begins, each time another start goes on with it, and each time the
/// training function is called again.
struct Started {
    std::string name;             ///< of the run
    std::string location;         ///< path or URI of its directory
    storage::Location directory;  ///< for whoever writes there
    std::string attempt;          ///< of this start; each has another
    bool resumed = false;         ///< it goes on from a checkpoint of its own
    std::filesystem::path logs;   ///< where result.json grows; params.json is there, too
    std::uint64_t log_size = 0;   ///< bytes of result.json
    std::int64_t step = 0;        ///< how many steps of worker.log() count
    std::uint64_t steps_size = 0; ///< bytes of steps.jsonl
    /// How many reports count. Those that came behind them lie in superseded.json, and will be made
    /// again.
    std::int64_t iteration = 0;
    std::string checkpoint;                         ///< the one that it goes on from; "" for none
    std::vector<checkpoint::Committed> checkpoints; ///< of this run
};

/// A model was prepared for training.
struct Prepared {
    const std::vector<console::ModelPart>& parts; ///< itself first
    /// Floating-point operations of this rank's first step, forward and backward; empty until it
    /// has ended. To be called from one thread. Null: nobody counts them.
    std::function<std::optional<double>()> first_step_flops{};
};

/// A line was added to result.json. It is durable when it belongs to a checkpoint.
struct Reported {
    const Config& line;
    bool asks_for_validation = false;
    std::uint64_t log_size = 0; ///< bytes of result.json with it
};

/// Steps of worker.log() were added to steps.jsonl.
struct Stepped {
    std::int64_t step = 0;        ///< the last
    std::uint64_t steps_size = 0; ///< bytes of steps.jsonl with it
    const Config* line = nullptr; ///< of the last
};

/// What all ranks have reported together, behind Reported: only where somebody takes it.
struct ReportedByAll {
    const std::vector<Config>& metrics;          ///< by rank
    const std::optional<Checkpoint>& checkpoint; ///< made in this report, if it is committed
};

/// A checkpoint was committed.
struct Saved {
    const std::string& checkpoint;
    const Config& line; ///< of the report that it was made in, or of the last one before
};

/// The validation of a checkpoint has ended.
struct Validated {
    const std::string& checkpoint;
    const checkpoint::ValidationRecord& record;
};

/// Training failed, and this process can tell. Ended or Restarting follows.
struct Failed {
    const std::map<int, std::string>& failures; ///< by rank
};

/// The training function failed, and is about to be called again in these processes.
struct Restarting {
    const std::map<int, std::string>& failures; ///< by rank
    const std::string& what;                    ///< all of them in words
    const std::string& reason;                  ///< why it is called again
    int ranks = 1;                              ///< that go on
    bool lost_ranks = false;                    ///< fewer than before
};

/// The run is about to end without a failure.
struct Closing {
    bool pauses = false; ///< it has made room; the same command goes on with it
};

/// No process goes on with the run by itself.
struct Ended {
    enum class How : unsigned char {
        finished,
        preempted, ///< it has made room; the same command goes on with it
        failed     ///< a driver may start other processes, which then begin with Started
    };
    How how = How::finished;
    std::string message{};          ///< of the failure
    const Result* result = nullptr; ///< when it has finished
};

/// One who hears of a run, on rank 0. Events come one by one, in the order in which things happen,
/// from whichever thread they happen in. Training waits meanwhile, so what takes long belongs into
/// a thread of the observer's own. An observer may throw: the run goes on, and it still hears of
/// what comes (see Observers).
class Observer {
public:
    Observer() = default;
    Observer(const Observer&) = delete;
    Observer& operator=(const Observer&) = delete;
    virtual ~Observer() = default;

    /// For people.
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
    /// Behind it, the run's logs are brought to a storage service for the last time.
    virtual void closing(const Closing& /*event*/) {}
    virtual void ended(const Ended& /*event*/) {}
};

} // namespace track
} // namespace rtrain
