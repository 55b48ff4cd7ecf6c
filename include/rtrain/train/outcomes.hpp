// SPDX-License-Identifier: Apache-2.0
/// @file
/// Combines the outcomes of all ranks.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/grouped_errors.hpp>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Empty if all ranks finished. If no rank has a cause other than interruption, blames the
/// interrupted ranks: the function threw a similar exception itself.
[[nodiscard]] inline std::optional<TrainingFailedError>
error_of(const std::vector<Outcome>& outcomes) {
    std::vector<Failure> causes;
    std::vector<Failure> interrupted;
    for (int rank = 0; rank < static_cast<int>(outcomes.size()); ++rank) {
        if (Outcome outcome = outcomes[static_cast<std::size_t>(rank)]) {
            outcome->rank = rank;
            const bool is_cause = outcome->kind != Failure::Kind::interrupted;
            (is_cause ? causes : interrupted).push_back(std::move(*outcome));
        }
    }
    if (causes.empty()) {
        causes = std::move(interrupted);
    }
    if (causes.empty()) {
        return std::nullopt;
    }
    std::map<int, std::string> texts;
    for (const Failure& failure : causes) {
        texts[failure.rank] = failure.text();
    }
    return TrainingFailedError("the training function failed:" +
                                   launch::group_by_text(texts, static_cast<int>(outcomes.size())),
                               std::move(causes));
}

} // namespace rtrain::detail
