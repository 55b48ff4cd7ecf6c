// SPDX-License-Identifier: Apache-2.0
/// @file
/// ConsoleConfig: a run's terminal output and its live page.
/// Cost tier 0: std only.
#pragma once

#include <optional>

namespace rtrain {

/// Output for people while a run trains, on the standard error of rank 0, or of the driver if there
/// is one: docs/console.md.
struct ConsoleConfig {
    /// Level of detail (RT-C39):
    /// - 0: nothing except errors and warnings.
    /// - 1: the setup of the run, its models with their submodules, a progress bar, and a summary
    ///   at the end.
    /// - 2: also nested submodules.
    int verbose = 1;
    /// TCP port on this machine on which rank 0 serves report.html during the run; 0: any free port
    /// (RT-C39). Unset: none.
    std::optional<int> live{};
};

} // namespace rtrain
