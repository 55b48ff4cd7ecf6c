// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrainingRanks: the ranks of a run that train.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/gbdt/options.hpp>
#include <rtrain/gbdt/team.hpp>
#include <rtrain/train/worker_loops.hpp>

#include <ATen/Parallel.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace rtrain::gbdt {

/// Returns the communicator of all ranks; null if the backend has none.
template <class Worker>
[[nodiscard]] comm::Communicator* communicator_of([[maybe_unused]] Worker& worker) {
    if constexpr (requires { worker.communicator(); }) {
        return &worker.communicator();
    } else {
        return nullptr;
    }
}

/// The ranks that train, from any of them: a team, and the communicator of its members.
class TrainingRanks {
public:
    /// `all`: the communicator of all ranks; null if the backend has none. Collective. Throws
    /// ConfigError [RT-G13].
    TrainingRanks(WorkerLoops& worker, comm::Communicator* all, Ranks which) {
        const bool on_gpu = worker.device().is_cuda();
        const bool each = which == Ranks::all || on_gpu;
        trains_ = each || worker.local_rank() == 0;
        const std::vector<int> trains = worker.all_gather(trains_ ? 1 : 0);
        const std::vector<int> nodes = worker.all_gather(worker.node_rank());
        const std::vector<int> threads = worker.all_gather(at::get_num_threads());
        team_.size = 0;
        team_.threads = each ? at::get_num_threads() : 0;
        for (int rank = 0; rank < worker.size(); ++rank) {
            const auto i = static_cast<std::size_t>(rank);
            team_.rank += trains[i] != 0 && rank < worker.rank() ? 1 : 0;
            team_.size += trains[i] != 0 ? 1 : 0;
            team_.threads += !each && nodes[i] == worker.node_rank() ? threads[i] : 0;
            team_.on_one_node = team_.on_one_node && nodes[i] == nodes.front();
        }
        if (on_gpu) {
            team_.device = detail::concat("cuda:", static_cast<int>(worker.device().index()));
        }
        if (team_.size > 1) {
            if (all == nullptr) {
                throw ConfigError("RT-G13",
                                  detail::concat(team_.size, " ranks train, but their "
                                                             "backend has no communicator; use "
                                                             "backend::Mpi, or one rank"));
            }
            members_ = all->split(trains_ ? 0 : 1);
            team_.ranks = members_.get();
        }
    }

    /// True if this rank trains.
    [[nodiscard]] bool trains() const noexcept { return trains_; }
    [[nodiscard]] const Team& team() const noexcept { return team_; }

private:
    bool trains_ = false;
    Team team_;
    std::unique_ptr<comm::Communicator> members_;
};

} // namespace rtrain::gbdt
