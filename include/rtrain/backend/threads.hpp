// SPDX-License-Identifier: Apache-2.0
/// @file
/// The number of intra-op threads of a rank: its cores, divided among the ranks that may use the
/// same ones. torchrun sets 1 on any machine, Ray Train leaves every rank all cores.
#pragma once

#include <rtrain/comm/communicator.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/process/os/environment.hpp>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <sched.h>

namespace rtrain::backend {

/// Returns the number of cores of this rank, divided by the number of ranks of its node that may
/// use one of them. Collective.
inline int cores_per_rank(comm::Communicator& ranks) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine);
    const at::Tensor all =
        ranks.all_gather(at::from_blob(&mine, {static_cast<std::int64_t>(sizeof mine)}, at::kByte));
    const comm::World& world = ranks.world();
    int sharing = 0;
    for (int rank = 0; rank < ranks.size(); ++rank) {
        cpu_set_t other;
        std::memcpy(&other, all[rank].const_data_ptr(), sizeof other);
        CPU_AND(&other, &other, &mine);
        const bool neighbour = world.node_of(rank) == world.node_of(ranks.rank());
        sharing += neighbour && CPU_COUNT(&other) > 0 ? 1 : 0;
    }
    return std::max(1, CPU_COUNT(&mine) / std::max(1, sharing));
}

inline void set_threads(comm::Communicator& ranks, const ScalingConfig& scaling) {
    const int cores = cores_per_rank(ranks);
    if (scaling.threads_per_worker > 0) {
        at::set_num_threads(scaling.threads_per_worker);
    } else if (!launch::env_int("OMP_NUM_THREADS")) {
        at::set_num_threads(cores);
    }
}

} // namespace rtrain::backend
