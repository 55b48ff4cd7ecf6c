// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decision: what follows a failure that the ranks have survived. Cost tier 0: std only.
#pragma once

#include <string>
#include <vector>

namespace rtrain::launch {

struct Decision {
    bool restart = false; ///< the training function is called again in the same processes
    double delay_s = 0;   ///< pause before the restart, seconds
    /// Names of all checkpoints that the run must not resume from.
    std::vector<std::string> skip{};
    std::string reason{}; ///< for people: "restart 1 of 3", "max_failures = 3 is used up"

    bool operator==(const Decision&) const = default;
};

} // namespace rtrain::launch
