// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door convert_sync_batch_norm.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/model/batch_norm/convert_sync_batch_norm.hpp>
#include <rtrain/model/batch_norm/sync_batch_norm.hpp>
#include <rtrain/model/parameters/scripted_module.hpp>

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <memory>
#include <string>
#include <utility>

namespace rtrain {

namespace detail {

/// Returns null when `module` is not a batch normalisation.
[[nodiscard]] inline std::shared_ptr<SyncBatchNormImpl>
sync_batch_norm_of(const torch::nn::Module& module) {
    if (const auto* const one = module.as<torch::nn::BatchNorm1dImpl>()) {
        return std::make_shared<SyncBatchNormImpl>(*one);
    }
    if (const auto* const two = module.as<torch::nn::BatchNorm2dImpl>()) {
        return std::make_shared<SyncBatchNormImpl>(*two);
    }
    if (const auto* const three = module.as<torch::nn::BatchNorm3dImpl>()) {
        return std::make_shared<SyncBatchNormImpl>(*three);
    }
    return nullptr;
}

/// Throws ModelError [RT-M93] for a module of a script with running statistics.
inline void refuse_scripted(const torch::nn::Module& module, const std::string& name) {
    if (dynamic_cast<const ScriptedModule*>(&module) != nullptr &&
        module.named_buffers(/*recurse=*/false).contains("running_mean")) {
        throw ModelError("RT-M93",
                         concat("the batch normalisation \"", name,
                                "\" is part of a script, whose code cannot be replaced; export "
                                "the network with LayerNorm or GroupNorm, or freeze its statistics "
                                "by calling eval() on this module"));
    }
}

} // namespace detail

RTRAIN_DOOR void convert_sync_batch_norm(torch::nn::Module& module) {
    const auto modules = module.named_modules("", /*include_self=*/true);
    for (const auto& part : modules) {
        detail::refuse_scripted(*part.value(), part.key());
    }
    const auto refuse = [](const torch::nn::Module& part, const std::string& name) {
        if (detail::sync_batch_norm_of(part)) {
            throw ModelError("RT-M16",
                             detail::concat("the batch normalisation \"", name,
                                            "\" is not an element of a torch::nn::Sequential "
                                            "and cannot be replaced; declare it as "
                                            "rtrain::SyncBatchNorm instead"));
        }
    };
    refuse(module, "");
    for (const auto& parent : modules) {
        if (parent.value()->as<torch::nn::SequentialImpl>() == nullptr) {
            const std::string path = parent.key().empty() ? "" : parent.key() + ".";
            for (const auto& child : parent.value()->named_children()) {
                refuse(*child.value(), path + child.key());
            }
        }
    }
    for (const auto& parent : modules) {
        if (auto* const sequence = parent.value()->as<torch::nn::SequentialImpl>()) {
            auto element = sequence->begin();
            for (const auto& child : sequence->named_children()) {
                if (auto converted = detail::sync_batch_norm_of(*child.value())) {
                    *element = torch::nn::AnyModule(converted);
                    sequence->replace_module(child.key(), std::move(converted));
                }
                ++element;
            }
        }
    }
}

} // namespace rtrain
