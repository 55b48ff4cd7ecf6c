// SPDX-License-Identifier: Apache-2.0
/// @file
/// StragglerWatch: detects from the ranks' reports which rank slows the others down.
///
/// A rank is a straggler if steps take much longer than before and the others mostly wait while it
/// does not. A single long step, such as an evaluation on one rank, makes no straggler, nor does a
/// machine that slows all ranks. Pure: takes times as arguments.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/launch/control/rank_report.hpp>
#include <rtrain/launch/watch/longest_pause.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::launch {

struct Straggler {
    int rank = 0;
    double step_s = 0;      ///< duration of a step now
    double earlier_s = 0;   ///< duration of a step before
    double others_wait = 0; ///< part of a step for which each other rank waits at least

    [[nodiscard]] std::string text() const {
        const auto rounded = [](double x) { return std::round(x * 1000) / 1000; };
        return detail::concat("rank ", rank, " slows the others down: a step takes ",
                              rounded(step_s), " s, up from ", rounded(earlier_s),
                              " s, and the others wait for it ", std::round(others_wait * 100),
                              "% of the time");
    }
};

class StragglerWatch {
public:
    using Clock = std::chrono::steady_clock;

    /// Steps are compared in blocks of at least this many steps and seconds.
    static constexpr std::uint64_t block_steps = 5;
    static constexpr double block_s = 1.5;
    /// A straggler makes a step at least this many times longer,
    static constexpr double slower = 2;
    /// waits for at most this part of it, and each other rank waits for at least that part.
    static constexpr double waits_little = 0.25;
    static constexpr double waits_much = 0.5;
    /// The same rank is not reported again for this long.
    static constexpr std::chrono::minutes named_again{10};

    explicit StragglerWatch(int size) : ranks_(static_cast<std::size_t>(size)) {}

    void on_report(const RankReport& report, Clock::time_point now) {
        Rank& rank = ranks_[static_cast<std::size_t>(report.rank)];
        if (report.steps < rank.steps) { // the run has started over
            start_over();
        }
        if (rank.seen_at) {
            const double passed = seconds(now - *rank.seen_at);
            rank.seen_s += passed;
            rank.waited_s += rank.waits ? passed : 0;
        }
        rank.seen_at = now;
        rank.waits = !report.waiting_in.empty();
        rank.steps = report.steps;
        between_steps_only_ = between_steps_only_ && report.phase == Phase::training;
        advance(now);
    }

    /// The rank is permanently lost, and the others continue without it.
    void set_gone(int rank) {
        ranks_[static_cast<std::size_t>(rank)].gone = true;
        start_over();
    }

    /// Returns the straggler of the last steps, once.
    [[nodiscard]] std::optional<Straggler> look() { return std::exchange(found_, std::nullopt); }

    /// Excludes a time without calls.
    void shift(Clock::duration gap) {
        front_at_ += gap;
        for (Rank& rank : ranks_) {
            if (rank.seen_at) {
                *rank.seen_at += gap;
            }
        }
    }

private:
    struct Rank {
        bool gone = false;
        std::optional<Clock::time_point> seen_at{};
        bool waits = false;
        std::uint64_t steps = 0;
        double seen_s = 0;   ///< since the last step of all ranks
        double waited_s = 0; ///< of that, waiting
        std::optional<Clock::time_point> named_at{};
    };
    struct Block {
        std::uint64_t steps = 0;
        double length_s = 0;
        std::vector<std::pair<double, std::uint64_t>> durations{}; ///< of a step, and count
        std::vector<double> waits{};                               ///< rank -> steps spent waiting
    };

    void start_over() {
        for (Rank& rank : ranks_) {
            rank = {.gone = rank.gone};
        }
        block_ = {};
        front_ = std::nullopt;
    }

    /// All ranks have advanced by a step or more: adds one sample.
    void advance(Clock::time_point now) {
        std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
        bool all_seen = true;
        for (const Rank& rank : ranks_) {
            least = rank.gone ? least : std::min(least, rank.steps);
            all_seen = all_seen && (rank.gone || rank.seen_s > 0);
        }
        if (front_ && least <= *front_) {
            return;
        }
        if (front_ && all_seen && between_steps_only_) {
            add(least - *front_, seconds(now - front_at_));
        }
        if (!front_ || all_seen) {
            front_ = least;
            front_at_ = now;
            between_steps_only_ = true;
            for (Rank& rank : ranks_) {
                rank.seen_s = rank.waited_s = 0;
            }
        }
        if (block_.steps >= block_steps && block_.length_s >= block_s) {
            judge(std::exchange(block_, {}), now);
        }
    }

    void add(std::uint64_t steps, double length_s) {
        const auto count = static_cast<double>(steps);
        block_.steps += steps;
        block_.length_s += length_s;
        block_.durations.emplace_back(length_s / count, steps);
        block_.waits.resize(ranks_.size());
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            const Rank& one = ranks_[rank];
            block_.waits[rank] += one.gone ? count : count * one.waited_s / one.seen_s;
        }
    }

    void judge(Block block, Clock::time_point now) {
        std::sort(block.durations.begin(), block.durations.end());
        std::uint64_t below = 0;
        double median = 0;
        for (const auto& [duration, steps] : block.durations) {
            median = duration;
            below += steps;
            if (2 * below >= block.steps) {
                break;
            }
        }
        if (ranks_.size() > 1 && earlier_.size() >= 2) {
            compare(block, median, now);
        }
        constexpr std::size_t remembered = 20;
        earlier_.push_back(median);
        if (earlier_.size() > remembered) {
            earlier_.pop_front();
        }
    }

    void compare(const Block& block, double step_s, Clock::time_point now) {
        std::vector<double> before(earlier_.begin(), earlier_.end());
        const auto middle = before.begin() + static_cast<std::ptrdiff_t>(before.size() / 2);
        std::nth_element(before.begin(), middle, before.end());
        const auto least = std::min_element(block.waits.begin(), block.waits.end());
        const auto steps = static_cast<double>(block.steps);
        double others = steps;
        for (auto waits = block.waits.begin(); waits != block.waits.end(); ++waits) {
            others = waits == least ? others : std::min(others, *waits);
        }
        const auto rank = static_cast<std::size_t>(least - block.waits.begin());
        auto& named_at = ranks_[rank].named_at;
        if (step_s >= slower * *middle && *least <= waits_little * steps &&
            others >= waits_much * steps && (!named_at || now - *named_at >= named_again)) {
            named_at = now;
            found_ = {static_cast<int>(rank), step_s, *middle, others / steps};
        }
    }

    std::vector<Rank> ranks_;
    std::optional<std::uint64_t> front_; ///< steps that all ranks have completed
    Clock::time_point front_at_{};
    bool between_steps_only_ = true; ///< since then, all ranks were training
    Block block_;
    std::deque<double> earlier_; ///< duration of a step, in the last blocks
    std::optional<Straggler> found_;
};

} // namespace rtrain::launch
