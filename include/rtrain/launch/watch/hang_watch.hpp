// SPDX-License-Identifier: Apache-2.0
/// @file
/// Detects from the ranks' reports whether a run hangs. HangConfig has the limits;
/// docs/architecture.md describes how failures are judged.
///
/// Pure: takes times as arguments, uses no processes. A machine under load must not look like a
/// hang. So time without CPU for the driver does not count, nor time in which the ranks' output is
/// not consumed. Reports that are late on all ranks prove nothing. A deadlock is when all ranks
/// wait inside rtrain; a rank outside may do work that cannot be observed.
#pragma once

#include <rtrain/base/grouped_errors.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/launch/control/rank_report.hpp>
#include <rtrain/launch/watch/longest_pause.hpp>
#include <rtrain/launch/watch/straggler_watch.hpp>
#include <rtrain/launch/watch/watched_rank.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::launch {

/// Watches one attempt of a run. Call look() at least once a second, even without reports.
///
/// @code
/// HangWatch watch(run.failure.hang, 4);
/// watch.on_report(report, HangWatch::Clock::now());
/// if (const auto finding = watch.look(HangWatch::Clock::now()); finding && finding->is_hang) {
///     end_ranks(finding->text + "\n" + watch.describe(HangWatch::Clock::now()));
/// }
/// @endcode
class HangWatch {
public:
    using Clock = std::chrono::steady_clock;

    /// A rank computes if it uses at least this part of a core for a second.
    static constexpr double computes = 0.05;

    struct Finding {
        enum class Kind : std::uint8_t {
            stopped,  ///< its process is stopped (SIGSTOP)
            silent,   ///< its reports stop, those of others do not
            idle,     ///< no rank makes progress, and none computes
            busy,     ///< no rank makes progress, though one computes outside rtrain
            starting, ///< ranks have not started to train
            straggler ///< one rank slows the others down: no hang
        };
        Kind kind = Kind::idle;
        int rank = -1; ///< the culprit; -1: none
        std::string text{};
        bool is_hang = true;
    };

    HangWatch(const HangConfig& config, int size)
        : config_(config), ranks_(static_cast<std::size_t>(size)), stragglers_(size) {}

    void on_report(const RankReport& report, Clock::time_point now) {
        if (report.rank < 0 || report.rank >= static_cast<int>(ranks_.size())) {
            return;
        }
        pass(now);
        // Time in which no rank reported proves nothing about any of them.
        const Clock::duration unknown = now - known(now);
        progress_at_ += unknown;
        outside_at_ += unknown;
        active_at_ += unknown;
        heard_s_ += seconds(now - heard_at_ - unknown);
        heard_at_ = now;
        WatchedRank& rank = ranks_[static_cast<std::size_t>(report.rank)];
        const bool computed = rank.measure(report, now) >= computes;
        if (rank.is_news(report)) {
            progress(rank, report, now);
        }
        if (report.waiting_in.empty() && report.phase != Phase::done) {
            outside_at_ = now;
            active_at_ = computed ? now : active_at_;
        }
        rank.take(report, now);
        rank.heard_s = heard_s_;
        stragglers_.on_report(report, now);
    }

    /// `stopped`: the rank's process is in state T in /proc/<pid>/stat.
    void set_stopped(int rank, bool stopped, Clock::time_point now) {
        pass(now);
        auto& since = ranks_.at(static_cast<std::size_t>(rank)).stopped_since;
        since = stopped ? since.value_or(now) : std::optional<Clock::time_point>();
    }

    /// The rank is permanently lost, and the others continue without it.
    void set_gone(int rank) {
        ranks_.at(static_cast<std::size_t>(rank)).gone = true;
        stragglers_.set_gone(rank);
    }

    /// The output of the ranks is not consumed: ranks that print wait, and others wait for them.
    void set_output_blocked(bool blocked) noexcept { output_blocked_ = blocked; }

    /// Returns the current problem, if any. A hang is found again by each call.
    [[nodiscard]] std::optional<Finding> look(Clock::time_point now) {
        pass(now);
        leave_out_blocked(now);
        if (config_.enabled) {
            for (const auto check :
                 {&HangWatch::stopped, &HangWatch::silent, &HangWatch::stalled}) {
                if (auto finding = (this->*check)(now)) {
                    return finding;
                }
            }
        }
        if (const auto straggler = stragglers_.look()) {
            return Finding{Finding::Kind::straggler, straggler->rank, straggler->text(), false};
        }
        return std::nullopt;
    }

    /// Returns a deadlock: every rank waits for others, and none has progressed for a while. A
    /// preempted run needs this before its grace time is over, and before look() finds it.
    [[nodiscard]] std::optional<Finding> deadlock(Clock::time_point now) {
        pass(now);
        const double without_s = seconds(known(now) - progress_at_);
        constexpr double patience_s = 5;
        if (without_s < std::max(patience_s, config_.factor * pauses_.seconds(now)) ||
            std::none_of(ranks_.begin(), ranks_.end(), lives) || !all_wait() || !all_are_heard()) {
            return std::nullopt;
        }
        return idle(without_s);
    }

    /// Returns one line per rank about what it does, each with a line break.
    [[nodiscard]] std::string describe(Clock::time_point now) const {
        std::string text;
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            text += detail::concat("rank ", i, ": ", ranks_[i].describe(now), "\n");
        }
        return text;
    }

private:
    static bool lives(const WatchedRank& rank) { return rank.is_live(); }
    /// main() may take any time to make the next call.
    static bool waits_for_main(const WatchedRank& rank) {
        return rank.is_live() && rank.last.phase == Phase::waiting;
    }

    /// The time up to which reports describe what the ranks do.
    [[nodiscard]] Clock::time_point known(Clock::time_point now) const {
        constexpr std::chrono::seconds between_reports{1};
        return std::min(now, heard_at_ + between_reports);
    }

    /// Records the time. A long gap between calls means that the driver had no CPU or was stopped
    /// itself: that time does not count.
    void pass(Clock::time_point now) {
        if (!last_call_) {
            progress_at_ = outside_at_ = active_at_ = heard_at_ = looked_at_ = now;
        } else if (constexpr std::chrono::seconds unseen{2}; now - *last_call_ > unseen) {
            const Clock::duration gap = now - *last_call_;
            for (Clock::time_point* time :
                 {&progress_at_, &outside_at_, &active_at_, &heard_at_, &looked_at_}) {
                *time += gap;
            }
            for (WatchedRank& rank : ranks_) {
                rank.shift(gap);
            }
            stragglers_.shift(gap);
        }
        last_call_ = std::max(now, last_call_.value_or(now));
    }

    /// Excludes the time since the last call, if a rank may have waited for its output to be
    /// consumed.
    void leave_out_blocked(Clock::time_point now) {
        const bool blocked =
            output_blocked_ || std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
                return rank.is_live() && rank.last.output_blocked;
            });
        for (Clock::time_point* time : {&progress_at_, &outside_at_, &active_at_}) {
            *time = blocked ? std::min(*time + (now - looked_at_), now) : *time;
        }
        looked_at_ = now;
    }

    void progress(const WatchedRank& rank, const RankReport& report, Clock::time_point now) {
        if (!rank.is_starting() && report.phase != Phase::starting) {
            pauses_.add(seconds(now - progress_at_), now);
            const double idle_s = seconds(now - std::max(progress_at_, outside_at_));
            constexpr double measurable_s = 2;
            if (idle_s > measurable_s) {
                idle_pauses_.add(idle_s, now);
            }
        }
        progress_at_ = now;
    }

    [[nodiscard]] std::optional<Finding> stopped(Clock::time_point now) {
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            const auto& since = ranks_[i].stopped_since;
            if (since && seconds(now - *since) >= config_.stopped_s && !ranks_[i].gone &&
                ranks_[i].last.phase != Phase::done) {
                return Finding{
                    Finding::Kind::stopped, static_cast<int>(i),
                    detail::concat("rank ", i, " is stopped: its process is in state T")};
            }
        }
        return std::nullopt;
    }

    [[nodiscard]] std::optional<Finding> silent(Clock::time_point now) {
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            const WatchedRank& rank = ranks_[i];
            if (rank.is_live() && !rank.stopped_since &&
                heard_s_ - rank.heard_s >= config_.silent_s) {
                return Finding{Finding::Kind::silent, static_cast<int>(i),
                               detail::concat("rank ", i, " has not reported for ",
                                              tenths(seconds(now - rank.reported_at)),
                                              " s, but other ranks have")};
            }
        }
        return std::nullopt;
    }

    [[nodiscard]] std::optional<Finding> stalled(Clock::time_point now) {
        const auto starting =
            std::find_if(ranks_.begin(), ranks_.end(),
                         [](const WatchedRank& rank) { return rank.is_starting(); });
        if (starting != ranks_.end()) {
            return late(*starting, static_cast<int>(starting - ranks_.begin()), now);
        }
        if (std::none_of(ranks_.begin(), ranks_.end(), lives)) {
            return std::nullopt;
        }
        if (std::any_of(ranks_.begin(), ranks_.end(), waits_for_main)) {
            progress_at_ = outside_at_ = active_at_ = now;
            return std::nullopt;
        }
        const double idle_limit_s =
            std::max(config_.idle_s, config_.factor * idle_pauses_.seconds(now));
        const double unheard_s = seconds(now - heard_at_);
        if (unheard_s >= std::max(idle_limit_s, config_.silent_s)) {
            return Finding{Finding::Kind::silent, -1,
                           detail::concat("no rank has reported for ", tenths(unheard_s), " s")};
        }
        const double without_s = seconds(known(now) - progress_at_);
        if (all_wait() && all_are_heard() &&
            seconds(known(now) - std::max(progress_at_, outside_at_)) >= idle_limit_s) {
            return idle(without_s);
        }
        if (without_s < std::max(config_.busy_s, config_.factor * pauses_.seconds(now))) {
            return std::nullopt;
        }
        const bool none_computes = seconds(known(now) - active_at_) > without_s / 2;
        auto finding = none_computes ? idle(without_s) : busy(without_s);
        if (!all_wait()) {
            finding.text += "; if that is its work, raise failure.hang.busy_s or call "
                            "worker.heartbeat() periodically";
        }
        return finding;
    }

    [[nodiscard]] Finding busy(double without_s) const {
        const int rank = culprit();
        return {Finding::Kind::busy, rank,
                detail::concat("no rank has made progress for ", tenths(without_s), " s, but ",
                               rank < 0 ? "one" : "rank ", rank < 0 ? "" : std::to_string(rank),
                               " computes")};
    }

    /// True if all ranks wait inside rtrain for others.
    [[nodiscard]] bool all_wait() const {
        return std::all_of(ranks_.begin(), ranks_.end(), [](const WatchedRank& rank) {
            return !rank.is_live() || (!rank.is_starting() && !rank.last.waiting_in.empty());
        });
    }

    /// True if all have reported lately; others may compute.
    [[nodiscard]] bool all_are_heard() const {
        constexpr double heard_lately_s = 2;
        return std::all_of(ranks_.begin(), ranks_.end(), [&](const WatchedRank& rank) {
            return !rank.is_live() || heard_s_ - rank.heard_s < heard_lately_s;
        });
    }

    [[nodiscard]] std::optional<Finding> late(const WatchedRank& rank, int number,
                                              Clock::time_point now) const {
        const double without_s = seconds(now - progress_at_);
        if (without_s < config_.start_s) {
            return std::nullopt;
        }
        return Finding{Finding::Kind::starting, number,
                       detail::concat("rank ", number,
                                      rank.joined ? " has not started to train" : " has not joined",
                                      ", and nothing has happened for ", tenths(without_s), " s")};
    }

    [[nodiscard]] Finding idle(double without_s) const {
        std::string text =
            detail::concat("no rank has made progress for ", tenths(without_s), " s");
        std::map<std::string, std::vector<int>> waits;
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            if (ranks_[i].is_live()) {
                waits[ranks_[i].last.waiting_in].push_back(static_cast<int>(i));
            }
        }
        const int rank = culprit();
        const char* separator = " and none computes: ";
        for (const auto& [what, ranks] : waits) {
            text += detail::concat(separator, ranks_named(ranks),
                                   ranks.size() == 1 ? " waits " : " wait ",
                                   what.empty() ? "for no rank" : "in ", what);
            separator = ", ";
        }
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            const RankReport& last = ranks_[i].last;
            if (ranks_[i].is_live() && last.waiting_in.empty() && !last.reading.empty()) {
                text += detail::concat(", rank ", i, " reads ", last.reading);
            }
        }
        if (waits.size() - waits.count("") > 1) {
            text += "; all ranks must make the same calls in the same order, which "
                    "RTRAIN_CHECK_CALLS=1 in the environment compares";
        }
        return {Finding::Kind::idle, rank, std::move(text)};
    }

    /// The first rank that waits for no other; otherwise one that has waited in fewer collectives
    /// than others; otherwise -1.
    [[nodiscard]] int culprit() const {
        int last = -1;
        std::uint64_t fewest = 0;
        std::uint64_t most = 0;
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            const WatchedRank& rank = ranks_[i];
            if (!rank.is_live()) {
                continue;
            }
            if (rank.last.waiting_in.empty()) {
                return static_cast<int>(i);
            }
            if (last < 0 || rank.last.collectives < fewest) {
                last = static_cast<int>(i);
                fewest = rank.last.collectives;
            }
            most = std::max(most, rank.last.collectives);
        }
        return fewest < most ? last : -1;
    }

    HangConfig config_;
    std::vector<WatchedRank> ranks_;
    StragglerWatch stragglers_;
    std::optional<Clock::time_point> last_call_;
    Clock::time_point progress_at_{}; ///< when a rank last made progress
    Clock::time_point outside_at_{};  ///< when one was last outside rtrain
    Clock::time_point active_at_{};   ///< when one outside last computed
    Clock::time_point heard_at_{};    ///< when one last reported
    Clock::time_point looked_at_{};   ///< last call of look()
    bool output_blocked_ = false;
    double heard_s_ = 0; ///< time in which reports arrived
    LongestPause pauses_;
    LongestPause idle_pauses_; ///< while all ranks waited
};

} // namespace rtrain::launch
