// SPDX-License-Identifier: Apache-2.0
/// @file
/// The number of GPUs that CUDA finds for this process.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/nccl/cuda.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace rtrain::backend {

/// 0 without CUDA.
[[nodiscard]] inline int cuda_devices() {
    return c10::impl::hasDeviceGuardImpl(at::kCUDA)
               ? c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount()
               : 0;
}

/// Throws ConfigError [RT-N1] when there is none.
[[nodiscard]] inline int require_cuda_devices() {
    if (!c10::impl::hasDeviceGuardImpl(at::kCUDA)) {
        throw ConfigError("RT-N1",
                          "backend::Nccl trains on GPUs, but this program's libtorch was built "
                          "without CUDA; link one that was, or use backend::Mpi");
    }
    const int devices = cuda_devices();
    if (devices < 1) {
        throw ConfigError("RT-N1", "backend::Nccl trains on GPUs, but CUDA finds none here: " +
                                       comm::why_no_device() +
                                       "; check `nvidia-smi`, or use backend::Mpi");
    }
    return devices;
}

} // namespace rtrain::backend
