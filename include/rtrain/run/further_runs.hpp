// SPDX-License-Identifier: Apache-2.0
/// @file
/// FurtherRuns: runs that follow one another in the same ranks: what comes behind the first, and
/// when. A search's trials do so (tune/search_link.hpp).
///
/// Ranks that have ended a run well come to wait(), and begin the next with what it brings. Any
/// failure that is not forgiven ends them, as it does without further runs.
#pragma once

#include <rtrain/run/options.hpp>

#include <optional>
#include <string>

namespace rtrain::detail {

class FurtherRuns {
public:
    FurtherRuns() = default;
    FurtherRuns(const FurtherRuns&) = delete;
    FurtherRuns& operator=(const FurtherRuns&) = delete;
    virtual ~FurtherRuns() = default;

    /// On rank 0: the run has ended well.
    virtual void ended() = 0;
    /// On rank 0: waits for a run to follow; returns what it is, or "" when a while has passed
    /// without one. None: no run follows.
    [[nodiscard]] virtual std::optional<std::string> wait() = 0;
    /// On all ranks, and on their driver: the options of this run, with its name.
    [[nodiscard]] virtual TrainerOptions options(const std::string& run) = 0;
    /// On rank 0: all ranks are about to begin it.
    virtual void begun() = 0;
};

} // namespace rtrain::detail
