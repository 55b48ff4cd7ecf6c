// SPDX-License-Identifier: Apache-2.0
/// @file
/// StepTensors: the values of worker.log(): numbers, and tensors with one element. Those on a
/// device are read in batches, by the thread of the StepLog.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/track/lines/step_value.hpp>

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <string_view>
#include <vector>

namespace rtrain {

struct StepTensors {
    using Value = StepValue;
    using Later = at::Tensor; ///< on a device; else undefined

    /// Throws ConfigError [RT-C34].
    static void check(std::string_view name, const StepValue& value) {
        if (const at::Tensor* const tensor = value.tensor(); tensor && tensor->numel() != 1) {
            throw ConfigError("RT-C34",
                              detail::concat("log() was given a tensor of ", tensor->numel(),
                                             " elements as \"", name, "\"; expected one element"));
        }
    }

    void keep(const StepValue& value, double& number, at::Tensor& later) {
        if (const double* const given = value.number()) {
            number = *given;
        } else if (const at::Tensor& tensor = *value.tensor(); tensor.is_cpu()) {
            number = tensor.item<double>();
        } else {
            later = tensor.detach();
            stream = c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
        }
    }

    /// Waits only once for the device, on the stream that computed the tensors.
    template <class Entries>
    void read(Entries& entries) const {
        const c10::OptionalStreamGuard guard(stream);
        std::vector<at::Tensor> tensors;
        for (const auto& entry : entries) {
            if (entry.later.defined()) {
                tensors.push_back(entry.later.reshape({}).to(at::kDouble));
            }
        }
        if (tensors.empty()) {
            return;
        }
        const at::Tensor numbers = at::stack(tensors).cpu();
        const auto* number = numbers.const_data_ptr<double>();
        for (auto& entry : entries) {
            if (entry.later.defined()) {
                entry.number = *number++;
                entry.later.reset();
            }
        }
    }

    std::optional<c10::Stream> stream{}; ///< of the device tensors
};

} // namespace rtrain
