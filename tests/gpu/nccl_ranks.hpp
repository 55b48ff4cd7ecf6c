// SPDX-License-Identifier: Apache-2.0
/// @file
/// How tests of backend::Nccl start it, on as many GPUs as there are.
#pragma once

#include "support/training.hpp"

#include <rtrain/backend/nccl.hpp>
#include <rtrain/trainer.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace test {

/// At most one a rank.
inline rtrain::ScalingConfig scaling() {
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int devices = c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount();
    return {.gpus_per_worker = std::min(1.0, static_cast<double>(devices) / ranks)};
}

inline rtrain::TrainerOptions options_in(const Directory& directory) {
    return {.scaling = scaling(), .run = {.name = "run", .storage_path = directory.path()}};
}

} // namespace test
