// SPDX-License-Identifier: Apache-2.0
/// @file
/// How many intra-op threads a rank runs: its cores, shared with the ranks that may use the same
/// ones. torchrun sets 1 whatever the machine, Ray Train leaves every rank all cores.
#pragma once

#include <rtrain/comm/mpi.hpp>
#include <rtrain/config.hpp>
#include <rtrain/launch/environment.hpp>

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include <sched.h>

namespace rtrain::backend {

/// Collective over `node`, the ranks of this machine.
inline int threads_of_rank(MPI_Comm node) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine);
    int ranks = 1;
    MPI_Comm_size(node, &ranks);
    std::vector<cpu_set_t> all(static_cast<std::size_t>(ranks));
    comm::check_mpi(
        MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, node),
        "MPI_Allgather");
    const auto sharing = std::count_if(all.begin(), all.end(), [&](const cpu_set_t& other) {
        cpu_set_t common;
        CPU_AND(&common, &mine, &other);
        return CPU_COUNT(&common) > 0;
    });
    return std::max(1, CPU_COUNT(&mine) / std::max(1, static_cast<int>(sharing)));
}

inline void set_threads(MPI_Comm node, const ScalingConfig& scaling) {
    const int cores_per_rank = threads_of_rank(node);
    if (scaling.threads_per_worker > 0) {
        at::set_num_threads(scaling.threads_per_worker);
    } else if (!launch::env_int("OMP_NUM_THREADS")) {
        at::set_num_threads(cores_per_rank);
    }
}

} // namespace rtrain::backend
