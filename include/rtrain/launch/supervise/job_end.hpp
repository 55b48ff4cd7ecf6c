// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a job ended, as its driver saw it.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/rank_prefix.hpp>
#include <rtrain/launch/supervise/failure_policy.hpp>
#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/launch/supervise/out_of_memory.hpp>
#include <rtrain/launch/supervise/program.hpp>

#include <optional>
#include <string>

namespace rtrain::launch {

struct JobEnd {
    /// The failure that broke it; empty if the ranks ended by themselves.
    std::optional<Failure> failure{};
    /// Name of the newest checkpoint; empty if none exists, or the ranks never resumed from it.
    std::string checkpoint{};

    /// Combines this with the failure `told` in the ranks' `result`, if they left one.
    [[nodiscard]] RunEnd with(const std::optional<Failure>& told,
                              const std::optional<std::string>& result,
                              const Failure& without_result) const {
        using Kind = Failure::Kind;
        if (!told) {
            return {.failure = failure.value_or(without_result)};
        }
        // Ranks may notice that another has died, also while they join, or that they were given up;
        // the driver's failure is more precise.
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

    /// Failure of a preempted run that has not saved.
    [[nodiscard]] Failure without_a_save() const {
        const bool hung = failure && failure->kind == Failure::Kind::hang;
        return detail::failure_of(PreemptionError(
            detail::concat("the run was preempted and ",
                           hung ? "could not save: " + failure->message : "had no time to save",
                           "; run the same command to resume from the newest checkpoint")));
    }
};

/// The failure for a death that the launcher reports. `trained`: the ranks had begun to train.
[[nodiscard]] inline Failure failure_of_death(const RankExit& seen, bool trained) {
    using Kind = Failure::Kind;
    return {.kind = !seen.code.empty() ? Kind::configuration
                    : trained          ? Kind::died
                                       : Kind::start_up,
            .code = !seen.code.empty() ? seen.code : ErrorCode("RT-L2"),
            .rank = seen.rank,
            .message = seen.text,
            .from_outside = seen.signal && is_sent_by_others(*seen.signal)};
}

/// The failure of a rank that has left during training, with its last words if it sent any.
[[nodiscard]] inline Failure failure_of_rank(int rank, int size,
                                             const std::optional<Failure>& last_words) {
    if (last_words) {
        using Kind = Failure::Kind;
        Failure failure = *last_words;
        failure.rank = rank;
        failure.message = detail::with_rank(rank, size, failure.message);
        if (failure.kind != Kind::died && failure.kind != Kind::configuration) {
            failure.kind = failure.kind == Kind::interrupted ? Kind::interrupted : Kind::threw;
            failure.code = "RT-T1";
        }
        return failure;
    }
    return {.kind = Failure::Kind::died,
            .code = "RT-L2",
            .rank = rank,
            .message = detail::concat(
                "rank ", rank, " of ", size,
                " ended before the training function returned, without reporting an error"),
            .from_outside = true};
}

/// Recognizes a SIGKILL from the out-of-memory killer; not possible for ranks on other machines.
inline void name_lack_of_memory(Failure& failure, const OutOfMemoryWatch& memory) {
    if (memory.has_killed()) {
        failure.code = "RT-L15";
        failure.message += "; the kernel's out-of-memory killer has been active on this machine";
    }
}

} // namespace rtrain::launch
