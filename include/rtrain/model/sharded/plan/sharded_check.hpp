// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks whether the ranks of a node can share a model's parameters.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/parameters/buckets.hpp>
#include <rtrain/model/parameters/scripted_module.hpp>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Throws ModelError [RT-M40] for a module that writes its parameters in forward.
inline void require_unwritten(const torch::nn::Module& root) {
    const auto look_at = [](const torch::nn::Module& module) {
        const auto* const one = module.as<torch::nn::EmbeddingImpl>();
        const auto* const bag = module.as<torch::nn::EmbeddingBagImpl>();
        if ((one != nullptr && one->options.max_norm()) ||
            (bag != nullptr && bag->options.max_norm())) {
            throw ModelError(
                "RT-M40",
                concat("module ", module.name(),
                       " has a max_norm, so its forward writes weights that all ranks of a node "
                       "read; remove max_norm, or prepare the model with DataParallelOptions"));
        }
    };
    look_at(root);
    for (const auto& module : root.modules(/*include_self=*/false)) {
        look_at(*module);
    }
}

/// Throws ModelError [RT-M154] for a script that libtorch may fuse on `device`: fused kernels read
/// weights that no operator has as an argument, so ranks cannot gather these on use.
inline void require_operators(const torch::nn::Module& root, at::Device device) {
    if (device.is_cpu() || !torch::jit::tensorExprFuserEnabled() ||
        !torch::jit::getGraphExecutorOptimize()) {
        return;
    }
    for (const auto& module : root.modules()) {
        if (dynamic_cast<const ScriptedModule*>(module.get()) != nullptr) {
            throw ModelError("RT-M154",
                             concat("module ", module->name(),
                                    " is a script, which libtorch may "
                                    "fuse on ",
                                    device,
                                    ", but Shard::parameters gathers weights for operators that it "
                                    "sees; call worker.enable_reproducibility(), which switches "
                                    "fusion off, or prepare the model with Shard::gradients"));
        }
    }
}

/// Throws ModelError [RT-M40], naming the first parameter or module of the model that ranks
/// computing on `device` cannot share.
inline void check_sharded(const torch::nn::Module& module,
                          const std::vector<NamedParameter>& parameters, at::Device device) {
    std::vector<std::pair<const std::byte*, const std::byte*>> memory;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const auto& [name, tensor] = parameters[i];
        const auto refuse = [&name = name](const auto&... why) {
            throw ModelError("RT-M40", concat("parameter \"", name, "\" ", why...,
                                              "; prepare the model with DataParallelOptions"));
        };
        if (!at::isFloatingType(tensor.scalar_type())) {
            refuse("is ", tensor.scalar_type(),
                   ", but a sharded model has real floating-point parameters only");
        }
        if (tensor.device() != device) {
            refuse("is on ", tensor.device(), ", but this rank shards models on ", device);
        }
        if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
            refuse("has elements that share memory, as after expand()");
        }
        const auto* const begin = static_cast<const std::byte*>(tensor.const_data_ptr());
        for (std::size_t other = 0; other < i; ++other) {
            if (begin < memory[other].second && memory[other].first < begin + tensor.nbytes()) {
                refuse("shares memory with parameter \"", parameters[other].name,
                       "\", but is a different tensor");
            }
        }
        memory.emplace_back(begin, begin + tensor.nbytes());
    }
    require_unwritten(module);
}

} // namespace rtrain::detail
