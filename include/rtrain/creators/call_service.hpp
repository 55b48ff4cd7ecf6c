// SPDX-License-Identifier: Apache-2.0
/// @file
/// CallService: a rank of a CreatorTrainer. It does what main() calls for, together with the other
/// ranks, and resumes between two calls or within one.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/creators/any_replica.hpp>
#include <rtrain/creators/settings.hpp>
#include <rtrain/creators/stats.hpp>
#include <rtrain/launch/calls/call.hpp>
#include <rtrain/launch/calls/call_record.hpp>
#include <rtrain/launch/calls/call_source.hpp>
#include <rtrain/state/state.hpp>
#include <rtrain/train/epochs.hpp>
#include <rtrain/train/worker_loops.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace rtrain::detail {

class CallService {
public:
    /// References outlive this object. `run`: the directory of the run.
    struct Parts {
        WorkerLoops& worker;
        HookRanks& ranks;
        AnyReplica& replica;
        launch::CallSource& calls;
        const CreatorSettings& settings;
        storage::Location run;
    };

    explicit CallService(Parts parts);

    /// Returns after shutdown().
    void serve();

private:
    /// The calls that have ended; the same on all ranks.
    struct Progress {
        std::int64_t calls = 0;       ///< number of the last call that has ended
        boost::json::object answer{}; ///< to it, if its checkpoint is its last act
        std::int64_t open = 0;        ///< number of a train() call in progress; 0: none
        int epochs = 0;               ///< that it has finished
        std::string train{};          ///< files of data; empty: those of data_creator
        std::string validation{};

        void save(StateWriter& out) const;
        void load(const StateReader& in);
    };

    enum class Next : std::uint8_t { call, epochs, end };

    [[nodiscard]] Next serve_epochs();
    [[nodiscard]] Next perform(const launch::Call& call, Epochs::Iterator& epoch);
    [[nodiscard]] launch::Call next();
    [[nodiscard]] std::optional<launch::Call> wait() const;
    [[nodiscard]] launch::Call missed_call();

    [[nodiscard]] launch::CallReply train(const launch::Call& call, Epochs::Iterator& epoch);
    [[nodiscard]] launch::CallReply validate(const launch::Call& call);
    [[nodiscard]] launch::CallReply save(const launch::Call& call);
    [[nodiscard]] launch::CallReply load(const launch::Call& call, bool only_weights);
    [[nodiscard]] launch::CallReply update_scheduler(const launch::Call& call);
    [[nodiscard]] launch::CallReply set_data(const launch::Call& call);
    [[nodiscard]] std::string file_of(const std::string& name) const;
    void end_epoch_of(const launch::Call& call, int epoch, bool is_last);
    [[nodiscard]] std::optional<Failure> refusal(const std::function<void()>& action);

    WorkerLoops& worker_;
    HookRanks& ranks_;
    AnyReplica& replica_;
    launch::CallSource& calls_;
    const CreatorSettings& settings_;
    launch::CallRecord record_; ///< used by rank 0
    Progress progress_;
    bool has_served_ = false; ///< a call, so that the next one is newer
    BatchSums sums_;          ///< of the train() call in progress
    State weights_;
    State objects_; ///< all that a user would save
    State state_;   ///< these, and the progress
};

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/creators/call_service_definitions.hpp>
#endif
