// SPDX-License-Identifier: Apache-2.0
/// @file
/// States of torch's own random number generators, to draw the same numbers again.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace rtrain::detail {

class RandomStates {
    struct State {
        at::Generator generator;
        at::Tensor bytes;
    };

public:
    /// Saves the current states for the CPU, the devices of `tensors` and the current GPU.
    explicit RandomStates(const std::vector<at::Tensor>& tensors) {
        std::vector<c10::Device> devices{c10::Device(at::kCPU)};
        const auto add = [&](c10::Device device) {
            if (std::ranges::find(devices, device) == devices.end()) {
                devices.push_back(device);
            }
        };
        for (const at::Tensor& tensor : tensors) {
            if (tensor.defined() && (tensor.is_cpu() || tensor.is_cuda())) {
                add(tensor.device());
            }
        }
        if (at::hasCUDA()) {
            const auto& cuda = at::globalContext().getAcceleratorHooksInterface(at::kCUDA);
            if (const auto current = cuda.getCurrentDevice(); cuda.hasPrimaryContext(current)) {
                add(c10::Device(at::kCUDA, current));
            }
        }
        for (const c10::Device device : devices) {
            const at::Generator& generator = at::globalContext().defaultGenerator(device);
            states_.push_back({generator, state_of(generator)});
        }
    }

    /// Removes states of generators that nothing was drawn from since.
    void forget_unused() {
        std::erase_if(states_, [](const State& state) {
            const at::Tensor now = state_of(state.generator);
            return now.nbytes() == state.bytes.nbytes() &&
                   std::memcmp(now.const_data_ptr(), state.bytes.const_data_ptr(), now.nbytes()) ==
                       0;
        });
    }

    /// While it lives, generators draw the numbers that followed `states`; afterwards, they
    /// continue as before it. All threads share generators, so only one Scope exists at a time.
    class Scope {
    public:
        explicit Scope(const RandomStates& states) {
            if (states.states_.empty()) {
                return;
            }
            alone_ = std::unique_lock(mutex());
            for (const State& state : states.states_) {
                before_.push_back({state.generator, state_of(state.generator)});
                set(state);
            }
        }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;
        ~Scope() { std::ranges::for_each(before_, set); }

    private:
        [[nodiscard]] static std::recursive_mutex& mutex() {
            static std::recursive_mutex mutex;
            return mutex;
        }
        std::unique_lock<std::recursive_mutex> alone_;
        std::vector<State> before_;
    };

private:
    [[nodiscard]] static at::Tensor state_of(at::Generator generator) {
        const std::lock_guard lock(generator.mutex());
        return generator.get_state();
    }
    static void set(const State& state) {
        at::Generator generator = state.generator;
        const std::lock_guard lock(generator.mutex());
        generator.set_state(state.bytes);
    }

    std::vector<State> states_;
};

} // namespace rtrain::detail
