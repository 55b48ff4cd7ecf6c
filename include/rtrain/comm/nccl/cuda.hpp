// SPDX-License-Identifier: Apache-2.0
/// @file
/// Functions of the CUDA runtime that c10 has no interface for, from the one that libtorch has
/// loaded. rtrain::nccl does not link it.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/nccl/types.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <cstdlib>
#include <string>

#include <dlfcn.h>

namespace rtrain::comm {

/// A function of the CUDA runtime; nullptr if the process has no such runtime.
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

/// The reason why CUDA has no device for this process, as far as known.
[[nodiscard]] inline std::string why_no_device() {
    const auto version = [](const char* name) {
        int number = -1;
        auto* const get = cuda_function<cudaError_t(int*)>(name);
        return get != nullptr && get(&number) == cudaSuccess ? number : -1;
    };
    const auto text = [](int number) {
        return detail::concat(number / 1000, '.', number % 1000 / 10);
    };
    const int driver = version("cudaDriverGetVersion");
    const int runtime = version("cudaRuntimeGetVersion");
    if (driver == 0) {
        return "no NVIDIA driver is installed, or this container cannot see it";
    }
    if (driver > 0 && driver / 1000 < runtime / 1000) {
        return detail::concat("the driver supports CUDA up to ", text(driver),
                              ", and this program's libtorch needs ", text(runtime),
                              "; update the driver, or use a libtorch for an older CUDA");
    }
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible == nullptr) {
        return "CUDA_VISIBLE_DEVICES is not set, so none is hidden";
    }
    return detail::concat("CUDA_VISIBLE_DEVICES is \"", visible, "\", which hides all others");
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
