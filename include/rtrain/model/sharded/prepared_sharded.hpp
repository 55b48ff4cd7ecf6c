// SPDX-License-Identifier: Apache-2.0
/// @file
/// The door between the handle of a sharded model and its engine (sharded_engine.hpp).
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/model/ddp/prepared_model.hpp>
#include <rtrain/model/options/sharded_options.hpp>

#include <torch/nn/module.h>

#include <functional>
#include <memory>

namespace rtrain::detail {

/// *Collective*; like prepare_model(). Also throws ModelError [RT-M40], ConfigError [RT-C41] and
/// CommError [RT-X12].
[[nodiscard]] std::shared_ptr<PreparedModel>
prepare_sharded(const std::shared_ptr<AnyBackend>& backend,
                const std::shared_ptr<torch::nn::Module>& module, const ShardedOptions& options);

/// Runs `edit` on one rank per node while the model's tensors are writable; then all ranks get rank
/// 0's buffers. *Collective.* `model`: from prepare_sharded().
void edit_weights(PreparedModel& model, const std::function<void()>& edit);
/// Runs `read` on each rank while the model's tensors are complete. *Collective.*
void read_weights(PreparedModel& model, const std::function<void()>& read);

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/model/sharded/prepared_sharded_definitions.hpp>
#endif
