// SPDX-License-Identifier: Apache-2.0
/// @file
/// gathered_rows(): the rows of all ranks, in rank order.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/train/worker_collectives.hpp>

#include <ATen/core/Tensor.h>

namespace rtrain::detail {

/// Concatenates tensors of shape (rows of the rank, ...). Undefined on ranks without rows, never on
/// the last one. *Collective.*
[[nodiscard]] at::Tensor gathered_rows(WorkerCollectives& worker, const at::Tensor& mine);

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/fit/gathered_rows_definitions.hpp>
#endif
