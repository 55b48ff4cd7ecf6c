// SPDX-License-Identifier: Apache-2.0
/// @file
/// Population: the trials of a search by state. It makes no decisions; the controller does
/// (tune/controller/controller.hpp).
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/tune/controller/live_trial.hpp>
#include <rtrain/tune/record/trial.hpp>
#include <rtrain/tune/schedule/scheduler.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::tune::internal {

class TrialPool {
public:
    /// The id of the next trial.
    [[nodiscard]] std::string next_id() const {
        char text[24];
        std::snprintf(text, sizeof text, "%05zu", trials_.size());
        return text;
    }

    /// Adds a waiting trial. Sets its number.
    void add(TrialRecord record) {
        record.number = static_cast<std::int64_t>(trials_.size());
        numbers_[record.id] = trials_.size();
        waiting_.push_back(trials_.size());
        ++pending_;
        trials_.emplace_back().record = std::move(record);
    }

    /// Throws Error [RT-U102].
    [[nodiscard]] LiveTrial& at(const std::string& id) {
        const auto found = numbers_.find(id);
        if (found == numbers_.end()) {
            throw Error("RT-U102", rtrain::detail::concat("this search has no trial ", id));
        }
        return trials_[found->second];
    }

    /// In the order of their numbers; references remain valid.
    [[nodiscard]] std::deque<LiveTrial>& all() noexcept { return trials_; }
    [[nodiscard]] const std::deque<LiveTrial>& all() const noexcept { return trials_; }

    [[nodiscard]] bool anyone_waits() const noexcept { return !waiting_.empty(); }
    [[nodiscard]] int pending() const noexcept { return pending_; }
    [[nodiscard]] int running() const noexcept { return running_; }

    /// The waiting trials, longest waiting first.
    [[nodiscard]] std::vector<Candidate> candidates() const {
        std::vector<Candidate> candidates;
        candidates.reserve(waiting_.size());
        for (const std::size_t number : waiting_) {
            const TrialRecord& record = trials_[number].record;
            candidates.push_back({record.id, record.state == TrialState::paused});
        }
        return candidates;
    }

    /// Changes the state of a trial.
    void move(LiveTrial& it, TrialState to) {
        TrialRecord& record = it.record;
        const auto waits = [](TrialState state) {
            return state == TrialState::pending || state == TrialState::paused;
        };
        const auto number = static_cast<std::size_t>(record.number);
        if (waits(record.state)) {
            std::erase(waiting_, number);
        }
        if (waits(to)) {
            waiting_.push_back(number);
        }
        pending_ += change(record.state, to, TrialState::pending);
        running_ += change(record.state, to, TrialState::running);
        record.state = to;
    }

private:
    static int change(TrialState from, TrialState to, TrialState counted) {
        return static_cast<int>(to == counted) - static_cast<int>(from == counted);
    }

    std::deque<LiveTrial> trials_;
    std::unordered_map<std::string, std::size_t> numbers_;
    std::vector<std::size_t> waiting_;
    int pending_ = 0;
    int running_ = 0;
};

} // namespace rtrain::tune::internal
