// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a job ended, as its driver has seen it.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/failure.hpp>

#include <optional>
#include <string>

namespace rtrain::launch {

/// How a job ended, as far as the driver has seen it.
struct JobEnd {
    /// What has broken it; empty when the ranks ended by themselves.
    std::optional<Failure> failure{};
    /// Name of the newest checkpoint; empty: there is none, or the ranks have not come so far.
    std::string checkpoint{};

    /// Of a run that was to make room.
    [[nodiscard]] Failure without_a_save() const {
        const bool hung = failure && failure->kind == Failure::Kind::hang;
        return detail::failure_of(PreemptionError(
            detail::concat("the run was told to make room and ",
                           hung ? "could not save: " + failure->message : "had no time to save",
                           "; start the same command again to go on from the newest checkpoint")));
    }
};

} // namespace rtrain::launch
