// SPDX-License-Identifier: Apache-2.0
/// @file
/// Determines which reports count in a trial that has resumed from another trial's state, under
/// Pbt. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/config/run_info.hpp>
#include <rtrain/journal/report_lines.hpp>

#include <cstdint>

namespace rtrain::tune::internal {

/// In the reports of such a trial: how often it has taken over a state. Each takeover moves its
/// training_iteration back or ahead.
inline constexpr const char* takeovers_field = "trial_takeovers";

[[nodiscard]] inline std::int64_t takeovers_before(const Config& report) {
    const auto* const field = report.if_contains(takeovers_field);
    return field != nullptr && field->is_int64() ? field->get_int64() : 0;
}

/// True if a report still counts when its trial resumes from a state after `reports` reports, so
/// that it is not repeated.
[[nodiscard]] inline bool counts(const Config& report, int takeovers, std::int64_t reports) {
    const auto before = takeovers_before(report);
    return before < takeovers || (before == takeovers && track::number_of(report) <= reports);
}

} // namespace rtrain::tune::internal
