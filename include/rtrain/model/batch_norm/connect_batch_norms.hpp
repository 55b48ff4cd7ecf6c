// SPDX-License-Identifier: Apache-2.0
/// @file
/// Connects the batch normalisations of a prepared model to its ranks.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/model/batch_norm/sync_batch_norm.hpp>

#include <torch/nn/module.h>

#include <memory>

namespace rtrain::detail {

/// Connects every SyncBatchNorm in the model to the backend's ranks while the result is held.
[[nodiscard]] inline c10::intrusive_ptr<BatchNormRanks>
connect_batch_norms(const std::shared_ptr<AnyBackend>& backend, torch::nn::Module& module) {
    auto ranks = backend->size() == 1 ? c10::intrusive_ptr<BatchNormRanks>()
                                      : c10::make_intrusive<BatchNormRanks>(backend);
    for (const auto& part : module.modules()) {
        if (auto* const norm = part->as<SyncBatchNormImpl>()) {
            norm->connect(ranks);
        }
    }
    return ranks;
}

} // namespace rtrain::detail
