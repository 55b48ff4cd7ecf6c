// SPDX-License-Identifier: Apache-2.0
/// @file
/// What c10 has no interface for, from the CUDA runtime that libtorch has loaded. rtrain::nccl does
/// not link it.
#pragma once

#include <rtrain/comm/nccl/types.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <string>

#include <dlfcn.h>

namespace rtrain::comm {

/// A function of the CUDA runtime; nullptr where the process has no such runtime.
template <class Function>
[[nodiscard]] Function* cuda_function(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

/// PCI address of a device, such as "0000:3B:00.0", equal for all processes of a node; empty if
/// CUDA does not say.
[[nodiscard]] inline std::string pci_address(int device) {
    std::array<char, 32> text{};
    auto* const get = cuda_function<decltype(cudaDeviceGetPCIBusId)>("cudaDeviceGetPCIBusId");
    const bool known = get != nullptr && get(text.data(), text.size(), device) == cudaSuccess;
    return known ? text.data() : "";
}

/// From now on, CUDA calls of this thread do not invalidate a graph that another thread captures.
inline void relax_stream_capture() {
    using Exchange = decltype(cudaThreadExchangeStreamCaptureMode);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (auto* const exchange = cuda_function<Exchange>("cudaThreadExchangeStreamCaptureMode")) {
        (void)exchange(&mode);
    }
}

} // namespace rtrain::comm
