// SPDX-License-Identifier: Apache-2.0
/// @file
/// Observer: who hears of what happens in a run, and what there is to hear. What is told is durable
/// already, unless it says otherwise.
#pragma once

#include <rtrain/checkpoint/store.hpp>
#include <rtrain/checkpoint/validation_record.hpp>
#include <rtrain/config/config.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace rtrain::track {

/// A run was taken up: when it begins, each time another start goes on with it, and each time the
/// training function is called again.
struct Started {
    std::filesystem::path logs; ///< where result.json grows; params.json is there, too
    /// How many reports count. Those that came behind them lie in superseded.json, and will be made
    /// again.
    std::int64_t iteration = 0;
    std::string checkpoint;                         ///< the one that it goes on from; "" for none
    std::vector<checkpoint::Committed> checkpoints; ///< of this run
};

/// A line was added to result.json. It is durable when it belongs to a checkpoint.
struct Reported {
    const Config& line;
    bool asks_for_validation = false;
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

/// The training function failed, and is about to be called again in these processes.
struct Restarting {
    const std::map<int, std::string>& failures; ///< by rank
    const std::string& what;                    ///< all of them in words
    const std::string& reason;                  ///< why it is called again
    int ranks = 1;                              ///< that go on
    bool lost_ranks = false;                    ///< fewer than before
};

/// No process goes on with the run by itself.
struct Ended {
    enum class How : unsigned char {
        finished,
        preempted, ///< it has made room; the same command goes on with it
        failed     ///< a driver may start other processes, which then begin with Started
    };
    How how = How::finished;
    std::string message{}; ///< of the failure
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
    virtual void reported(const Reported& /*event*/) {}
    virtual void saved(const Saved& /*event*/) {}
    virtual void validated(const Validated& /*event*/) {}
    virtual void restarting(const Restarting& /*event*/) {}
    virtual void ended(const Ended& /*event*/) {}
};

} // namespace rtrain::track
