// SPDX-License-Identifier: Apache-2.0
/// @file
/// The random numbers that what follows in these processes draws: as in new ones.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <mutex>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// torch's own: the CPU's and that of each GPU. Makes no GPU ready for use.
[[nodiscard]] inline std::vector<at::Generator> own_generators() {
    std::vector<at::Generator> all{at::globalContext().defaultGenerator(c10::Device(at::kCPU))};
    if (at::hasCUDA()) {
        const int gpus = c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount();
        for (int gpu = 0; gpu < gpus; ++gpu) {
            all.push_back(at::globalContext().defaultGenerator(
                c10::Device(at::kCUDA, static_cast<c10::DeviceIndex>(gpu))));
        }
    }
    return all;
}

/// Generators as they are at the construction.
class Generators {
public:
    explicit Generators(const std::vector<at::Generator>& all = own_generators()) {
        for (at::Generator generator : all) {
            const std::lock_guard lock(generator.mutex());
            at::Tensor state = generator.get_state().clone();
            states_.emplace_back(generator, std::move(state));
        }
    }

    /// They are again as they were.
    void restore() {
        for (auto& [generator, state] : states_) {
            const std::lock_guard lock(generator.mutex());
            generator.set_state(state);
        }
    }

private:
    std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

} // namespace rtrain::detail
