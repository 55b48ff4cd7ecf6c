// SPDX-License-Identifier: Apache-2.0
/// @file
/// HangDetector detects hangs: it feeds a HangWatch with the ranks' reports from a control server
/// and with /proc data of those on this machine. On a hang it requests the ranks' stacks and prints
/// what each rank does. Used by Job in the driver, and by PeerHangMonitor for ranks without one.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/launch/control/message.hpp>
#include <rtrain/launch/control/rank_report.hpp>
#include <rtrain/launch/watch/hang_watch.hpp>
#include <rtrain/process/os/others.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <sys/types.h>

namespace rtrain::launch {

class HangDetector {
public:
    using Clock = HangWatch::Clock;

    /// Time limit for the answers with stacks; a busy machine needs seconds for them.
    static constexpr std::chrono::seconds stacks_limit{5};

    /// `ask_for_stacks` sends "dump" to all ranks. A hang must last for `patience` before this
    /// object acts on it, so that another one can act first.
    HangDetector(const HangConfig& config, int size, std::function<void()> ask_for_stacks,
                 Clock::duration patience = {})
        : enabled_(config.enabled), watch_(config, size),
          ask_for_stacks_(std::move(ask_for_stacks)), patience_(patience) {}

    void joined(const Hello& hello) {
        ranks_[hello.rank] = {.local_process = hello.local ? hello.pid : 0};
    }
    void on_report(const RankReport& report) {
        if (const auto found = ranks_.find(report.rank); found != ranks_.end()) {
            found->second.reports_stop = report.stopped;
        }
        watch_.on_report(report, Clock::now());
    }
    void on_stack(int rank, std::string text) { ranks_.at(rank).stack = std::move(text); }
    /// The rank's connection has ended: no more requests are sent to it.
    void left(int rank) { ranks_.at(rank).connected = false; }
    /// The rank is permanently lost, and the others continue without it.
    void set_gone(int rank) { watch_.set_gone(rank); }

    /// `blocked`: the output of the ranks is not consumed.
    void set_output_blocked(bool blocked) noexcept { watch_.set_output_blocked(blocked); }

    /// The run is preempted: from now on ranks that wait for each other forever count as hung
    /// before any limit, because they cannot save.
    void hurry() { hurries_ = true; }

    /// True while waiting for stacks: call look() often.
    [[nodiscard]] bool is_waiting() const noexcept { return asked_at_.has_value(); }

    /// Call at least once a second. Returns what hangs, after printing all that is known about it;
    /// then call it no more.
    [[nodiscard]] std::optional<std::string> look() {
        if (!enabled_ && !hurries_) {
            return std::nullopt;
        }
        const auto now = Clock::now();
        if (asked_at_) {
            if (!all_have_answered() && now - *asked_at_ <= stacks_limit) {
                return std::nullopt;
            }
            print();
            return found_;
        }
        for (const auto& [rank, state] : ranks_) {
            if (state.connected) {
                watch_.set_stopped(rank, state.reports_stop || is_stopped(state), now);
            }
        }
        auto finding = watch_.look(now);
        if (!finding && hurries_) {
            finding = watch_.deadlock(now);
        }
        if (!finding || !finding->is_hang) {
            stands_since_.reset();
            if (finding && patience_ == Clock::duration::zero()) { // else another judge reports it
                console::warn("%s", finding->text.c_str());
            }
            return std::nullopt;
        }
        stands_since_ = stands_since_.value_or(now);
        if (now - *stands_since_ >= patience_) {
            found_ = finding->text;
            asked_at_ = now;
            ask_for_stacks_();
        }
        return std::nullopt;
    }

private:
    struct Rank {
        pid_t local_process = 0; ///< 0: on another machine
        bool connected = true;
        bool reports_stop = false; ///< RankReport::stopped
        std::string stack{};
    };

    [[nodiscard]] static bool is_stopped(const Rank& rank) {
        return rank.local_process > 0 && storage::process_state(rank.local_process) == 'T';
    }

    /// True if all ranks that can send their stacks have done so.
    [[nodiscard]] bool all_have_answered() const {
        return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& item) {
            const Rank& rank = item.second;
            return !rank.connected || !rank.stack.empty() || is_stopped(rank);
        });
    }

    void print() const {
        console::error("what the ranks do:\n%s", watch_.describe(Clock::now()).c_str());
        for (const auto& [rank, state] : ranks_) {
            if (!state.stack.empty()) {
                console::error("stack of rank %d:\n%s", rank, state.stack.c_str());
            }
        }
    }

    bool enabled_;
    bool hurries_ = false;
    HangWatch watch_;
    std::function<void()> ask_for_stacks_;
    Clock::duration patience_;
    std::map<int, Rank> ranks_; ///< those that have joined
    std::optional<Clock::time_point> stands_since_;
    std::optional<Clock::time_point> asked_at_;
    std::string found_;
};

} // namespace rtrain::launch
