// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decides whether ranks that survive a death continue without the dead ones.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/launch/supervise/mpirun_version.hpp>

#include <optional>

namespace rtrain::launch {

/// The number of ranks that must survive to continue after deaths; 0: the run restarts instead.
/// `says_why`: warns if keep_survivors has no effect.
[[nodiscard]] inline int ranks_to_keep(const FailureConfig& config, const NumWorkers& wanted,
                                       int ranks, bool says_why) {
    if (!config.keep_survivors) {
        return 0;
    }
    const std::optional<int> version = MpirunVersion::on_path().open_mpi;
    constexpr int first_with_ulfm = 5;
    const bool has_ulfm = version && *version >= first_with_ulfm;
    if (wanted.min() < ranks && has_ulfm) {
        return wanted.min();
    }
    if (says_why) {
        console::warn("keep_survivors has no effect: %s",
                      has_ulfm ? "num_workers does not allow fewer ranks"
                               : "the mpirun on PATH is not of Open MPI 5");
    }
    return 0;
}

} // namespace rtrain::launch
