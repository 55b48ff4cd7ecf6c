// SPDX-License-Identifier: Apache-2.0
/// @file
/// Connection: lets ranks train one model together.
#pragma once

#include <rtrain/gbdt/options.hpp>
#include <rtrain/gbdt/team.hpp>
#include <rtrain/gbdt/training_ranks.hpp>

#include <concepts>
#include <optional>

namespace rtrain::gbdt {

/// While it exists, the library's tables and boosters of this thread belong to one training on
/// several ranks. It outlives them.
template <class Engine>
class Connection {
public:
    /// Connects all ranks; each trains on its part of the rows, as with Ranks::all. *Collective.*
    /// Throws ConfigError [RT-G1, RT-G13].
    template <std::derived_from<WorkerLoops> Worker>
    explicit Connection(Worker& worker)
        : ranks_(std::in_place, worker, communicator_of(worker), Ranks::all), team_(ranks_->team()),
          link_(team_) {}
    /// Connects a team, whose communicator outlives this. *Collective* among its ranks.
    explicit Connection(const Team& team) : team_(team), link_(team_) {}
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    [[nodiscard]] const Team& team() const noexcept { return team_; }

private:
    std::optional<TrainingRanks> ranks_; ///< owns the team's communicator, unless the caller does
    Team team_;
    typename Engine::Link link_;
};

} // namespace rtrain::gbdt
