// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door weight_parts.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/weight_parts.hpp>
#include <rtrain/process/memory/deferred_copy.hpp>
#include <rtrain/process/memory/read_only_memory.hpp>
#include <rtrain/state/exact_parts.hpp>

#include <c10/core/GradMode.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace rtrain::detail {

RTRAIN_DOOR WeightParts::WeightParts(const torch::nn::Module& module)
    : tensors_(module.parameters()) {
    for (const at::Tensor& parameter : tensors_) {
        if (checkpoint::ExactParts::find(parameter) ||
            (parameter.is_cpu() && parameter.numel() > 0 &&
             process::ReadOnlyMemory::writable(parameter.const_data_ptr()) != nullptr)) {
            throw ConfigError("RT-F19", "Ema or Swa was given the module of a sharded model, whose "
                                        "weights ranks share; pass what prepare() returned: "
                                        "Ema(model), not Ema(*model)");
        }
    }
}

RTRAIN_DOOR WeightParts::WeightParts(const torch::nn::Module& module,
                                     std::shared_ptr<PreparedModel> prepared)
    : prepared_(std::move(prepared)), tensors_(module.parameters()) {
    for (at::Tensor& tensor : tensors_) {
        if (at::Tensor part = prepared_->part_of(tensor); part.defined()) {
            tensor = std::move(part);
        }
    }
}

RTRAIN_DOOR const checkpoint::PartOf* WeightParts::find_part(std::size_t number) const {
    return prepared_ ? prepared_->find_part(tensors_[number]) : nullptr;
}

RTRAIN_DOOR void WeightParts::write(const std::function<void()>& change) const {
    const c10::NoGradGuard no_grad;
    process::DeferredCopy::finish_all(); // of all ranks, before one of a sharded model writes
    if (prepared_) {
        prepared_->write_weights(change);
    } else {
        change();
    }
}

} // namespace rtrain::detail
