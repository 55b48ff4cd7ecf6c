// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrackerThreads: one thread per tracker of a run, from its start to its end.
#pragma once

#include <rtrain/config/tracker.hpp>
#include <rtrain/track/delivery/pending_rewind.hpp>
#include <rtrain/track/delivery/tracker_thread.hpp>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::track {

class TrackerThreads {
public:
    /// `pending` is null for trackers that start over in each rewind().
    explicit TrackerThreads(std::vector<AnyTracker> trackers,
                            std::shared_ptr<PendingRewind> pending = nullptr)
        : trackers_(std::move(trackers)), pending_(std::move(pending)) {}

    /// The run has started or resumed; its logs end at `ends`.
    void resume(const RunInfo& info, const LogEnds& ends) {
        if (threads_.empty()) {
            for (const AnyTracker& tracker : trackers_) {
                threads_.emplace_back(tracker);
            }
        }
        Position to = info.position;
        std::function<void()> rewound = [] {};
        if (pending_ && !threads_.empty()) {
            to = pending_->begin(info.directory, info.position, threads_.size());
            rewound = [pending = pending_, start = pending_->start()] { pending->rewound(start); };
        }
        for (TrackerThread& thread : threads_) {
            thread.resume(info, ends, to, rewound);
        }
    }

    /// One of the logs has grown.
    void grow(std::size_t log, const LogEnd& end) {
        for (TrackerThread& thread : threads_) {
            thread.grow(log, end);
        }
    }

    /// Finishes all trackers; detaches those that have not finished by `limit`.
    void finish(TrackerThread::Clock::time_point limit, Ending ending) {
        if (pending_) {
            pending_->ended(ending);
        }
        for (TrackerThread& thread : threads_) {
            thread.end(ending);
        }
        for (TrackerThread& thread : threads_) {
            thread.wait_until(limit);
        }
        threads_.clear();
    }

private:
    std::vector<AnyTracker> trackers_;
    std::shared_ptr<PendingRewind> pending_;
    std::deque<TrackerThread> threads_; ///< while the run is running
};

} // namespace rtrain::track
