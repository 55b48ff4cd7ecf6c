// SPDX-License-Identifier: Apache-2.0
/// @file
/// ConsoleConfig: what a run shows of itself on the console, and on a page of its own.
/// Cost tier 0: std only.
#pragma once

#include <optional>

namespace rtrain {

/// What people see of a run while it goes: on rank 0's standard error, or that of the program that
/// has launched the ranks: docs/console.md.
struct ConsoleConfig {
    /// How much of it (RT-C39):
    /// - 0: nothing. Errors, and what needs attention, are said all the same.
    /// - 1: what the run is made of, its models with the parts that they consist of, a bar of how
    ///   far it has come, and at the end what came of it.
    /// - 2: of models, also the parts of parts.
    int verbose = 1;
    /// TCP port on this machine at which rank 0 serves report.html while the run goes; 0: any that
    /// is free (RT-C39). Unset: none.
    std::optional<int> live{};
};

} // namespace rtrain
