// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrackedRanks: XGBoost's own connections between the ranks that train. Their functions are
/// experimental in XGBoost, and only this header calls them. Without libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/gbdt/xgboost/call.hpp>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

namespace rtrain::gbdt::xgboost {

/// XGBoost's tracker, which introduces ranks to each other; on one of them.
class Tracker {
public:
    /// `address`: of this machine, as the other ranks reach it. The system chooses the port.
    Tracker(int ranks, const std::string& address) {
        const boost::json::object config{
            {"dmlc_communicator", "rabit"}, {"n_workers", ranks}, {"host", address}, {"port", 0},
            {"timeout", bootstrap_s},       {"sortby", by_task}};
        TrackerHandle made = nullptr;
        check(XGTrackerCreate(boost::json::serialize(config).c_str(), &made), "XGTrackerCreate");
        handle_.reset(made);
        check(XGTrackerRun(made, "{}"), "XGTrackerRun");
    }

    /// Arguments with which ranks connect.
    [[nodiscard]] std::string arguments() const {
        const char* text = nullptr;
        check(XGTrackerWorkerArgs(handle_.get(), &text), "XGTrackerWorkerArgs");
        return text;
    }

private:
    static constexpr int bootstrap_s = 300;
    static constexpr int by_task = 1; ///< ranks in the order of their task IDs
    Handle<XGTrackerFree> handle_;
};

/// While it exists, XGBoost's functions on this thread train together with the other ranks.
class TrackedRanks {
public:
    /// `broadcast` returns the text of rank 0, where the tracker runs, on all ranks. Collective.
    /// Throws CommError [RT-G16] if XGBoost numbers the ranks differently.
    TrackedRanks(int rank, int size, const std::string& address,
                 const std::function<std::string(const std::string&)>& broadcast)
        : tracker_(rank == 0 ? std::make_unique<Tracker>(size, address) : nullptr) {
        boost::json::object config =
            json::parse(broadcast(tracker_ ? tracker_->arguments() : "")).as_object();
        std::array<char, 16> task{};
        (void)std::snprintf(task.data(), task.size(), "%09d", rank); // sorted as text
        config["dmlc_communicator"] = "rabit";
        config["dmlc_task_id"] = task.data();
        config["dmlc_timeout"] = longest_wait_s;
        config["dmlc_retry"] = 1; // the tracker listens before its arguments are known
        check(XGCommunicatorInit(boost::json::serialize(config).c_str()), "XGCommunicatorInit");
        if (XGCommunicatorGetRank() != rank || XGCommunicatorGetWorldSize() != size) {
            const int theirs = XGCommunicatorGetRank();
            (void)XGCommunicatorFinalize();
            throw CommError("RT-G16",
                            detail::concat("rank ", rank, " of ", size, " is rank ", theirs,
                                           " in XGBoost; the order of ranks must be "
                                           "equal; report this as a bug of rtrain"));
        }
    }
    TrackedRanks(const TrackedRanks&) = delete;
    TrackedRanks& operator=(const TrackedRanks&) = delete;
    /// Closes the connections: ranks that still wait for this one get an error.
    ~TrackedRanks() { (void)XGCommunicatorFinalize(); }

private:
    static constexpr int longest_wait_s = 1800;
    std::unique_ptr<Tracker> tracker_; ///< on rank 0; outlives its connection
};

} // namespace rtrain::gbdt::xgboost
