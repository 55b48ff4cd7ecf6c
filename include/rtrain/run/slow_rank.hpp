// SPDX-License-Identifier: Apache-2.0
/// Step times between two reports: for result.json, and to find a rank that is always slower than
/// the others. launch/watch/straggler_watch.hpp finds one that becomes slower.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/status/step_clock.hpp>

#include <boost/json/object.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::detail {

/// Adds to the sums; resets them if the number of ranks changed.
inline void add_to(std::vector<StepTimes>& sums, const std::vector<StepTimes>& by_rank) {
    if (sums.size() != by_rank.size()) {
        sums.assign(by_rank.size(), {});
    }
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
        for (std::size_t part = 0; part < step_part_names.size(); ++part) {
            sums[rank].seconds[part] += by_rank[rank].seconds[part];
        }
        sums[rank].steps += by_rank[rank].steps;
        sums[rank].rows += by_rank[rank].rows;
        sums[rank].skipped += by_rank[rank].skipped;
    }
}

/// Seconds by part, averaged over ranks, which add up to the time since the previous report; steps
/// of rank 0; rows of all ranks.
[[nodiscard]] inline boost::json::object time_of(const std::vector<StepTimes>& by_rank) {
    boost::json::object time;
    for (std::size_t part = 0; part < step_part_names.size(); ++part) {
        double sum = 0;
        for (const StepTimes& times : by_rank) {
            sum += times.seconds[part];
        }
        time[step_part_names[part]] = sum / static_cast<double>(by_rank.size());
    }
    double rows = 0;
    for (const StepTimes& times : by_rank) {
        rows += times.rows;
    }
    time["steps"] = static_cast<std::int64_t>(by_rank.front().steps);
    time["rows"] = static_cast<std::int64_t>(rows);
    return time;
}

/// Returns the total of all ranks.
[[nodiscard]] inline std::int64_t skipped_rows(const std::vector<StepTimes>& by_rank) {
    double rows = 0;
    for (const StepTimes& times : by_rank) {
        rows += times.skipped;
    }
    return static_cast<std::int64_t>(rows);
}

/// Finds a rank that all others wait for throughout reports.
class SlowRank {
public:
    /// Evaluates reports together until they span so many seconds.
    static constexpr double least_s = 10;
    /// The slow rank waits at most this fraction of the time, each other rank at least
    /// `waits_much`.
    static constexpr double waits_little = 0.1;
    static constexpr double waits_much = 0.25;

    /// Returns a message, once for each rank, that it slows the others down, and in which part.
    [[nodiscard]] std::optional<std::string> look(const std::vector<StepTimes>& by_rank) {
        add_to(sums_, by_rank);
        if (named_.size() != by_rank.size()) {
            named_.assign(by_rank.size(), false);
        }
        if (sums_.size() < 2 || sums_.front().total() < least_s) {
            return std::nullopt;
        }
        const auto slow = slowest();
        std::optional<std::string> text;
        if (slow && !named_[*slow]) {
            named_[*slow] = true;
            text = text_of(*slow);
        }
        sums_.assign(by_rank.size(), {});
        return text;
    }

private:
    [[nodiscard]] static double waiting(const StepTimes& times) {
        return times.of(StepPart::communication) / times.total();
    }

    [[nodiscard]] std::optional<std::size_t> slowest() const {
        std::optional<std::size_t> slow;
        for (std::size_t rank = 0; rank < sums_.size(); ++rank) {
            const double part = waiting(sums_[rank]);
            if (part <= waits_little && !slow) {
                slow = rank;
            } else if (!(part >= waits_much)) {
                return std::nullopt; // two do not wait, or one waits a little
            }
        }
        return slow;
    }

    [[nodiscard]] std::string text_of(std::size_t slow) const {
        std::size_t most = 0; // the part with the largest excess over the others
        double excess = 0;
        double others = 0;
        for (std::size_t part = 0; part < step_part_names.size(); ++part) {
            double sum = 0;
            for (std::size_t rank = 0; rank < sums_.size(); ++rank) {
                sum += rank == slow ? 0 : sums_[rank].seconds[part];
            }
            const double mean = sum / static_cast<double>(sums_.size() - 1);
            if (sums_[slow].seconds[part] - mean > excess) {
                excess = sums_[slow].seconds[part] - mean;
                others = mean;
                most = part;
            }
        }
        const auto rounded = [](double seconds) { return std::round(seconds * 10) / 10; };
        return concat("rank ", slow, " slows the others down: of the last ",
                      rounded(sums_[slow].total()), " s, its ", step_part_names[most], " took ",
                      rounded(sums_[slow].seconds[most]), " s, against ", rounded(others),
                      " s on the others, which waited for it");
    }

    std::vector<StepTimes> sums_;
    std::vector<bool> named_;
};

} // namespace rtrain::detail
