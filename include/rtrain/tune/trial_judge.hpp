// SPDX-License-Identifier: Apache-2.0
/// @file
/// RunConfig::stop of a search, as the judge of its trials.
#pragma once

#include <rtrain/config/run_info.hpp>
#include <rtrain/config/stop.hpp>
#include <rtrain/run/stop_judge.hpp>
#include <rtrain/tune/controller/plan.hpp>

#include <functional>
#include <memory>

namespace rtrain::detail {

/// Creates judges that apply the conditions to the reports of a trial, from the first on.
[[nodiscard]] inline std::function<tune::TrialJudge()> judge_of(const stop::Conditions& stop) {
    if (stop.empty()) {
        return nullptr;
    }
    return [stop]() -> tune::TrialJudge {
        auto conditions = std::make_shared<stop::Conditions>(stop);
        auto judge = std::make_shared<StopJudge>(*conditions);
        return [conditions, judge](const Config& report) {
            judge->hear(report);
            return judge->stops();
        };
    };
}

} // namespace rtrain::detail
