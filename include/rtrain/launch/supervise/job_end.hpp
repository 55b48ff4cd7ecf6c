// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a job ended, as its driver has seen it.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/rank_prefix.hpp>
#include <rtrain/launch/supervise/failure_policy.hpp>
#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/launch/supervise/program.hpp>

#include <optional>
#include <string>

namespace rtrain::launch {

/// How a job ended, as far as the driver has seen it.
struct JobEnd {
    /// What has broken it; empty when the ranks ended by themselves.
    std::optional<Failure> failure{};
    /// Name of the newest checkpoint; empty: there is none, or the ranks have not come so far.
    std::string checkpoint{};

    /// The run's, given what its ranks have `told` in their `result`, if they have left one.
    [[nodiscard]] RunEnd with(const std::optional<Failure>& told,
                              const std::optional<std::string>& result,
                              const Failure& without_result) const {
        using Kind = Failure::Kind;
        if (!told) {
            return {.failure = failure.value_or(without_result)};
        }
        // Ranks may notice that another has died, also while they join, or that they were given up;
        // whoever watches knows better why.
        const bool hung = failure && failure->kind == Kind::hang;
        if (told->kind != Kind::interrupted && !hung) {
            return {.failure = told, .result = result};
        }
        if (failure) {
            return {.failure = failure};
        }
        Failure at_the_start = *told;
        at_the_start.kind = Kind::start_up;
        return {.failure = at_the_start, .result = result};
    }

    /// Of a run that was to make room.
    [[nodiscard]] Failure without_a_save() const {
        const bool hung = failure && failure->kind == Failure::Kind::hang;
        return detail::failure_of(PreemptionError(
            detail::concat("the run was told to make room and ",
                           hung ? "could not save: " + failure->message : "had no time to save",
                           "; start the same command again to go on from the newest checkpoint")));
    }
};

/// Of a death as whoever has started the ranks tells it. `trained`: they had begun to train.
[[nodiscard]] inline Failure failure_of_death(const Death& seen, bool trained) {
    using Kind = Failure::Kind;
    return {.kind = seen.code != nullptr ? Kind::configuration
                    : trained            ? Kind::died
                                         : Kind::start_up,
            .code = seen.code != nullptr ? seen.code : "RT-L2",
            .rank = seen.rank,
            .message = seen.text,
            .from_outside = seen.signal && is_sent_by_others(*seen.signal)};
}

/// Of a rank that has left while it trained, with these last words or without any.
[[nodiscard]] inline Failure failure_of_rank(int rank, int size,
                                             const std::optional<Failure>& last_words) {
    if (last_words) {
        return {.kind = Failure::Kind::threw,
                .code = "RT-T1",
                .rank = rank,
                .message = detail::with_rank(rank, size, last_words->message)};
    }
    return {.kind = Failure::Kind::died,
            .code = "RT-L2",
            .rank = rank,
            .message =
                detail::concat("rank ", rank, " of ", size,
                               " ended before the training function returned, without a word"),
            .from_outside = true};
}

} // namespace rtrain::launch
