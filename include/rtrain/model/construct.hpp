// SPDX-License-Identifier: Apache-2.0
/// @file
/// The door of `worker.construct()`: constructs a model once, not once per rank.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/model/options/options.hpp>
#include <rtrain/model/options/sharded_options.hpp>

#include <torch/nn/module.h>

#include <functional>
#include <memory>

namespace rtrain::detail {

[[nodiscard]] inline const DataParallelOptions& averaging_of(const DataParallelOptions& options) {
    return options;
}
[[nodiscard]] inline const DataParallelOptions& averaging_of(const ShardedOptions& options) {
    return options.data_parallel;
}

/// Constructs a module on all ranks of the options' group, with values on the first rank only; on
/// the others, parameters and buffers have uninitialised memory, for an engine to fill. `make`
/// returns the module, and may be called twice. *Collective.* Throws what `make` throws on any
/// rank, and ConfigError [RT-C12] for options that keep some rank's own values.
void construct_once(const std::shared_ptr<AnyBackend>& ranks, const DataParallelOptions& options,
                    const std::function<std::shared_ptr<torch::nn::Module>()>& make);

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/model/construct_definitions.hpp>
#endif
