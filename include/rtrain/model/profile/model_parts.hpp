// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parts of a model, for display.
#pragma once

#include <rtrain/console/model_table.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace rtrain::detail {

/// "Conv2d" for torch's own "torch::nn::Conv2dImpl".
[[nodiscard]] inline std::string type_name(const torch::nn::Module& module) {
    std::string_view name = module.name();
    constexpr std::string_view holder = "Impl";
    if (name.ends_with(holder) && name.size() > holder.size()) {
        name.remove_suffix(holder.size());
    }
    if (const auto space = name.rfind("::");
        space != std::string_view::npos && name.find('<') == std::string_view::npos) {
        name.remove_prefix(space + 2);
    }
    return std::string(name);
}

/// Counts the parameters and bytes of a module.
[[nodiscard]] inline console::ModelPart part_of(const torch::nn::Module& module,
                                                const std::string& name, int depth) {
    console::ModelPart part{.name = name, .type = type_name(module), .depth = depth};
    std::unordered_set<const at::TensorImpl*> counted; // weights may be tied
    for (const at::Tensor& parameter : module.parameters()) {
        if (parameter.defined() && counted.insert(parameter.unsafeGetTensorImpl()).second) {
            part.parameters += parameter.numel();
            part.trainable += parameter.requires_grad() ? parameter.numel() : 0;
            part.bytes += static_cast<std::int64_t>(parameter.nbytes());
        }
    }
    for (const at::Tensor& buffer : module.buffers()) {
        if (buffer.defined() && counted.insert(buffer.unsafeGetTensorImpl()).second) {
            part.bytes += static_cast<std::int64_t>(buffer.nbytes());
        }
    }
    return part;
}

inline void add_parts(std::vector<console::ModelPart>& parts, const torch::nn::Module& module,
                      const std::string& name, int depth) {
    parts.push_back(part_of(module, name, depth));
    for (const auto& child : module.named_children()) {
        if (child.value()) {
            add_parts(parts, *child.value(), child.key(), depth + 1);
        }
    }
}

/// The model, then each module before its children.
[[nodiscard]] inline std::vector<console::ModelPart> parts_of(const torch::nn::Module& model) {
    std::vector<console::ModelPart> parts;
    add_parts(parts, model, "", 0);
    return parts;
}

} // namespace rtrain::detail
