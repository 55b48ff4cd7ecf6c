// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which reports of a trial count that has gone on with another trial's state, under Pbt. Cost tier
/// 1: Boost.JSON.
#pragma once

#include <rtrain/config/run_info.hpp>
#include <rtrain/journal/report_lines.hpp>

#include <cstdint>

namespace rtrain::tune::internal {

/// In the reports of such a trial: how often it has taken over a state. Its training_iteration goes
/// back by that, or ahead.
inline constexpr const char* takeovers_field = "trial_takeovers";

[[nodiscard]] inline std::int64_t takeovers_before(const Config& report) {
    const auto* const field = report.if_contains(takeovers_field);
    return field != nullptr && field->is_int64() ? field->get_int64() : 0;
}

/// Whether a report counts still when its trial goes on from a state behind `reports`: it is not
/// made again.
[[nodiscard]] inline bool counts(const Config& report, int takeovers, std::int64_t reports) {
    const auto before = takeovers_before(report);
    return before < takeovers || (before == takeovers && track::number_of(report) <= reports);
}

} // namespace rtrain::tune::internal
