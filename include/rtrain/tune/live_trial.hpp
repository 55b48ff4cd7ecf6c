// SPDX-License-Identifier: Apache-2.0
/// @file
/// LiveTrial: a trial while its search lasts: its record, the states it has saved, and what it was
/// told. Used by the controller only.
#pragma once

#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/plan.hpp>
#include <rtrain/tune/record/trial.hpp>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune::internal {

/// A state that a trial can go on from.
struct SavedState {
    std::string name;         ///< of its directory, below the trial's
    std::int64_t reports = 0; ///< that came before it
    double time_s = 0;        ///< that the trial had trained
};

/// What a running trial was told at a report.
enum class Told : unsigned char { nothing, pause, stop, exploit, end };

struct LiveTrial {
    TrialRecord record{};
    std::vector<SavedState> states{}; ///< oldest first
    int next_state = 0;               ///< number of the next one; none is used twice
    int taken_over = 0;               ///< how often its run has begun anew
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

    void save(std::string name) {
        states.push_back({std::move(name), record.reports, record.time_s});
        record.checkpoint = states.back().name;
        ++next_state;
    }

    /// A start begins: from the newest state, or from the beginning.
    void rewind() {
        record.checkpoint = states.empty() ? "" : states.back().name;
        record.reports = states.empty() ? 0 : states.back().reports;
        record.time_s = states.empty() ? 0 : states.back().time_s;
    }

    /// The conditions hear again what counts.
    void judge_anew(const std::function<TrialJudge()>& new_judge) {
        judge = new_judge ? new_judge() : nullptr;
        if (static_cast<std::int64_t>(heard.size()) > record.reports) {
            heard.resize(static_cast<std::size_t>(record.reports));
        }
        for (const Config& line : heard) {
            (void)judge(line);
        }
    }
};

} // namespace rtrain::tune::internal
