// SPDX-License-Identifier: Apache-2.0
/// @file
/// LiveTrial: a trial while its search lasts: its record, the states it has saved, and what it was
/// told. Used by the controller only.
#pragma once

#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/plan.hpp>
#include <rtrain/tune/record/takeovers.hpp>
#include <rtrain/tune/record/trial.hpp>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune::internal {

/// What a running trial was told at a report.
enum class Told : unsigned char { nothing, pause, stop, exploit, end };

/// Of what a scheduler has decided; to the others, it has let the trial go on.
[[nodiscard]] constexpr const char* verdict_of(Told told) noexcept {
    return told == Told::pause     ? "pause"
           : told == Told::stop    ? "stop"
           : told == Told::exploit ? "take over"
                                   : "go on";
}

struct LiveTrial {
    TrialRecord record{};
    std::vector<SavedState> states{}; ///< oldest first; of a run that keeps them itself, the newest
    int next_state = 0;               ///< number of the next one; none is used twice
    int missed_takeovers = 0;         ///< since the last that was done
    int taken_over = 0;               ///< how often it has begun anew, with another's state or none
    std::int64_t base_reports = 0;    ///< when its run began, if it keeps its states itself
    double base_time_s = 0;           ///< the same, seconds that it had trained
    Told told = Told::nothing;
    double time_before_s = 0;          ///< that it had trained when this start began
    std::optional<double> score{};     ///< the goal's, of the newest report; NaN is none
    std::optional<TrialReport> last{}; ///< with which it ends, unheard by the scheduler
    bool searcher_knows = false;       ///< how it has ended
    std::vector<Config> heard{};       ///< by the stop conditions; empty without any
    TrialJudge judge{};

    /// The name that its next state gets.
    [[nodiscard]] std::string next_state_name() const {
        char text[32];
        std::snprintf(text, sizeof text, "checkpoint_%06d", next_state);
        return text;
    }

    void save(SavedState state) {
        states.push_back(std::move(state));
        record.checkpoint = states.back().name;
        ++next_state;
    }

    /// It goes on from its newest state, or from the beginning.
    void rewind() {
        const SavedState from = states.empty() ? SavedState() : states.back();
        record.checkpoint = from.name;
        record.reports = from.reports;
        record.time_s = from.time_s;
    }

    /// The conditions hear again what counts: what it has reported with other states before, and up
    /// to this one.
    void judge_anew(const std::function<TrialJudge()>& new_judge) {
        judge = new_judge ? new_judge() : nullptr;
        std::erase_if(
            heard, [&](const Config& line) { return !counts(line, taken_over, record.reports); });
        for (const Config& line : heard) {
            (void)judge(line);
        }
    }
};

} // namespace rtrain::tune::internal
