// SPDX-License-Identifier: Apache-2.0
/// @file
/// LiveTrial: a trial of a running search: its record, its saved states, and the pending verdict.
/// Used by the controller only.
#pragma once

#include <rtrain/base/name_table.hpp>
#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/controller/plan.hpp>
#include <rtrain/tune/record/exploits.hpp>
#include <rtrain/tune/record/trial.hpp>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune::internal {

/// Verdict for a running trial at a report.
enum class Told : unsigned char { nothing, pause, stop, exploit, end };

/// The scheduler's verdict, as the search's events record it.
enum class RecordedVerdict : unsigned char { go_on, pause, stop, take_over };

inline constexpr auto verdict_names =
    rtrain::detail::name_table<RecordedVerdict>({{RecordedVerdict::go_on, "go on"},
                                                 {RecordedVerdict::pause, "pause"},
                                                 {RecordedVerdict::stop, "stop"},
                                                 {RecordedVerdict::take_over, "take over"}});

[[nodiscard]] constexpr RecordedVerdict verdict_of(Told told) noexcept {
    switch (told) {
    case Told::pause:
        return RecordedVerdict::pause;
    case Told::stop:
        return RecordedVerdict::stop;
    case Told::exploit:
        return RecordedVerdict::take_over;
    case Told::nothing:
    case Told::end: // by a stop condition
        break;
    }
    return RecordedVerdict::go_on;
}

struct LiveTrial {
    TrialRecord record{};
    std::vector<SavedState>
        states{};             ///< oldest first; only the newest if the run manages its states
    int next_state = 0;       ///< number of the next state; never reused
    int missed_takeovers = 0; ///< since the last successful one
    int taken_over = 0;       ///< how often it has started over, with another trial's state or none
    std::int64_t base_reports = 0; ///< when its run began, if it manages its states itself
    double base_time_s = 0;        ///< training time at that point, in seconds
    Told told = Told::nothing;
    double time_before_s = 0;          ///< training time when this start began
    std::optional<double> score{};     ///< the goal's, of the newest report; NaN counts as none
    std::optional<TrialReport> last{}; ///< with which it ends; not passed to on_result()
    bool searcher_knows = false;       ///< of its end
    std::vector<Config> heard{};       ///< reports passed to the stop conditions; empty without any
    TrialJudge judge{};

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

    /// Resets it to its newest state, or to the beginning.
    void rewind() {
        const SavedState from = states.empty() ? SavedState() : states.back();
        record.checkpoint = from.name;
        record.reports = from.reports;
        record.time_s = from.time_s;
    }

    /// Passes the reports that count to new stop conditions: those made with earlier states, and up
    /// to this state.
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
