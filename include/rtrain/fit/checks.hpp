// SPDX-License-Identifier: Apache-2.0
/// @file
/// Errors of Fit about options and losses.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/fit/options.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace rtrain::detail {

/// Facts about a training that options have to agree with.
struct FitFacts {
    int ranks = 1;
    bool is_automatic = true;
    bool has_validation = false;           ///< a step, and rows
    int accumulate = 1;                    ///< in the first epoch
    std::optional<std::int64_t> batches{}; ///< of this rank in an epoch; empty: unknown
};

/// Throws ConfigError [RT-F10, RT-F11, RT-F13].
void check_fit(const FitOptions& options, const FitFacts& facts);
/// Throws ConfigError [RT-F11] unless `accumulate`, of an epoch, can be divided between ranks.
void check_accumulate(const FitOptions& options, int accumulate, int ranks);

/// Throws ModelError [RT-F15, RT-F16] unless backward can start from the loss. NaN is found where
/// reading it does not wait for a device.
void check_loss(const at::Tensor& loss);

/// True if gradients are added up by micro-batches.
[[nodiscard]] bool adds_by_micro_batches(const FitOptions& options);

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/fit/checks_definitions.hpp>
#endif
