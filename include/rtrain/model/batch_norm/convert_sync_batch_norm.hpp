// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts a model's torch::nn::BatchNorm to SyncBatchNorm, where C++ allows it.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/model/batch_norm/sync_batch_norm.hpp>

#include <torch/nn/module.h>

namespace rtrain {

/// Replaces every torch::nn::BatchNorm1d, 2d and 3d that is an element of a torch::nn::Sequential
/// by a SyncBatchNorm with the same options, parameters and running values. Call it before
/// `prepare(model)`.
///
/// A batch normalisation that is a member of a class cannot be replaced: the member's type decides
/// at compile time which forward runs. Throws ModelError [RT-M16] naming the first such, before
/// anything is changed; declare it as `rtrain::SyncBatchNorm`.
///
/// @code
/// torch::nn::Sequential net(torch::nn::Conv2d(1, 8, 3), torch::nn::BatchNorm2d(8));
/// rtrain::convert_sync_batch_norm(*net);
/// auto model = worker.prepare(net);
/// @endcode
void convert_sync_batch_norm(torch::nn::Module& module);

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/model/batch_norm/convert_sync_batch_norm_definitions.hpp>
#endif
