// SPDX-License-Identifier: Apache-2.0
/// @file
/// Backend for one process: no ranks, no MPI, nothing to reduce.
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/config/config.hpp>

namespace rtrain::backend {

/// Rank 0 of 1. Good for debugging a training function, and for programs without MPI.
class Local {
public:
    /// Throws ConfigError [RT-C6] if the options request several workers.
    void start(const ScalingConfig& scaling) {
        if (scaling.num_workers.min() > 1) {
            throw ConfigError("RT-C6", detail::concat("backend::Local trains in this process, but "
                                                      "num_workers is ",
                                                      scaling.num_workers.min(),
                                                      "; leave it unset, or use backend::Mpi"));
        }
    }

    /// After a failure: nothing to reconnect.
    void rejoin() noexcept {}

    [[nodiscard]] int rank() const noexcept { return 0; }
    [[nodiscard]] int size() const noexcept { return 1; }
    void all_reduce(at::Tensor& /*tensor*/, ReduceOp /*op*/) noexcept {}
    void broadcast(at::Tensor& /*tensor*/, int /*root*/) noexcept {}
};

static_assert(Backend<Local>);

} // namespace rtrain::backend
