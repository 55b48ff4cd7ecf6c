// SPDX-License-Identifier: Apache-2.0
/// @file
/// Saves and restores random number generators, so that an attempt starts like a new process.
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

/// Returns torch's default generators: the CPU's and each GPU's. Does not initialize a GPU.
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

/// The states of generators at construction.
class Generators {
public:
    explicit Generators(const std::vector<at::Generator>& all = own_generators()) {
        for (at::Generator generator : all) {
            const std::lock_guard lock(generator.mutex());
            at::Tensor state = generator.get_state().clone();
            states_.emplace_back(generator, std::move(state));
        }
    }

    /// Restores the saved states.
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
