// SPDX-License-Identifier: Apache-2.0
/// @file
/// RunSequence: runs that the same ranks execute one after another, such as a search's trials
/// (tune/processes/search_link.hpp).
///
/// After a successful run, ranks call wait() and begin the run that it returns. A fatal failure
/// ends the ranks, as it does without further runs.
#pragma once

#include <rtrain/run/options/options.hpp>

#include <optional>
#include <string>

namespace rtrain::detail {

class RunSequence {
public:
    RunSequence() = default;
    RunSequence(const RunSequence&) = delete;
    RunSequence& operator=(const RunSequence&) = delete;
    virtual ~RunSequence() = default;

    /// Rank 0: called after a successful run.
    virtual void ended() = 0;
    /// Rank 0: waits for the next run and returns its name, or "" on timeout. nullopt: no run
    /// follows.
    [[nodiscard]] virtual std::optional<std::string> wait() = 0;
    /// All ranks and their driver: returns the options of the named run.
    [[nodiscard]] virtual TrainerOptions options(const std::string& run) = 0;
    /// Rank 0: called just before all ranks begin the run.
    virtual void begun() = 0;
};

} // namespace rtrain::detail
