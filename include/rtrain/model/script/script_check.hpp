// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a loaded program must be, to be trained: not frozen, not quantized, and a mode that train()
/// and eval() can switch.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/process/context.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace rtrain::script {

/// Calls `visit` for each node of a graph, also within branches and loops.
template <class Visit>
void each_node(torch::jit::Block& block, const Visit& visit) {
    for (torch::jit::Node* const node : block.nodes()) {
        visit(*node);
        for (torch::jit::Block* const inner : node->blocks()) {
            each_node(*inner, visit);
        }
    }
}

/// Calls `visit` for each operation of each method of the module, calls included.
template <class Visit>
void each_operation(const torch::jit::Module& module, const Visit& visit) {
    for (const auto& method : module.get_methods()) {
        if (method.function().isGraphFunction()) {
            const auto graph = method.graph()->copy();
            torch::jit::Inline(*graph);
            each_node(*graph->block(), visit);
        }
    }
}

/// The place of the argument `training` of an operator that behaves differently in training, and
/// of the argument without which it does not: a rate above 0, or running statistics.
struct ModalOperator {
    std::string_view name;
    std::size_t training;
    std::size_t needs;
};
inline constexpr std::array<ModalOperator, 10> modal_operators{{
    {"aten::dropout", 2, 1},
    {"aten::dropout_", 2, 1},
    {"aten::feature_dropout", 2, 1},
    {"aten::alpha_dropout", 2, 1},
    {"aten::feature_alpha_dropout", 2, 1},
    {"aten::batch_norm", 5, 3},
    {"aten::lstm", 6, 5},
    {"aten::gru", 6, 5},
    {"aten::rnn_tanh", 6, 5},
    {"aten::rnn_relu", 6, 5},
}};

/// The mode that tracing has fixed for an operator: true in training; nullopt: not fixed.
[[nodiscard]] inline std::optional<bool> fixed_mode(const torch::jit::Node& node) {
    const std::string_view name = node.kind().toQualString();
    if (name == "aten::scaled_dot_product_attention") { // has a rate in training, 0 in evaluation
        const auto rate = torch::jit::toIValue(node.namedInput("dropout_p"));
        return rate && rate->isDouble() && rate->toDouble() > 0 ? std::optional(true)
                                                                : std::nullopt;
    }
    for (const ModalOperator& known : modal_operators) {
        if (name != known.name || node.inputs().size() <= known.training) {
            continue;
        }
        const auto needs = torch::jit::toIValue(node.inputs()[known.needs]);
        const bool is_idle =
            needs && (needs->isNone() || (needs->isDouble() && needs->toDouble() == 0));
        const auto training = torch::jit::toIValue(node.inputs()[known.training]);
        if (training && training->isBool() && !is_idle) {
            return training->toBool();
        }
    }
    return std::nullopt;
}

/// Warns [RT-M90] of operators that keep the mode in which the network was traced.
inline void warn_of_fixed_mode(const torch::jit::Module& module, const std::string& file) {
    std::optional<bool> mode;
    std::string name;
    each_operation(module, [&](const torch::jit::Node& node) {
        if (const auto fixed = fixed_mode(node); fixed && !mode) {
            mode = fixed;
            name = std::string(node.kind().toUnqualString());
        }
    });
    if (mode && console::settings().rank <= 0 && ProcessContext::current().warned.add(file)) {
        console::warn("RT-M90: %s was traced in %s mode, which %s keeps: train() and eval() do "
                      "not switch it; export it with torch.jit.script(net), or trace it after "
                      "net.%s",
                      file.c_str(), *mode ? "training" : "evaluation", name.c_str(),
                      *mode ? "eval() for inference" : "train()");
    }
}

/// True if the module or one below has quantized tensors, or packed ones.
[[nodiscard]] inline bool is_quantized(const torch::jit::Module& module) {
    for (const auto& item : module.attributes(/*recurse=*/true)) {
        if (item.isTensor() && item.toTensor().defined() && item.toTensor().is_quantized()) {
            return true;
        }
        if (item.isObject() && item.type()->repr_str().find("PackedParams") != std::string::npos) {
            return true;
        }
    }
    return false;
}

/// True if one of the module's graphs has tensors among its constants.
[[nodiscard]] inline bool has_tensor_constants(const torch::jit::Module& module) {
    bool found = false;
    each_operation(module, [&](const torch::jit::Node& node) {
        if (node.kind() == torch::jit::prim::Constant && !found) {
            const auto value = torch::jit::toIValue(node.output());
            found = value && value->isTensor() && value->toTensor().is_floating_point() &&
                    value->toTensor().dim() > 0;
        }
    });
    return found;
}

/// Throws ModelError: RT-M82 it has no methods, RT-M85 it is frozen, RT-M91 it is quantized. Warns
/// of a fixed mode.
inline void require_trainable(const torch::jit::Module& module, const std::string& file) {
    if (module.get_methods().empty()) {
        throw ModelError("RT-M82",
                         detail::concat(file, " has tensors but no methods, as torch::save() of a "
                                              "C++ module writes it; load it with torch::load() "
                                              "into that module, or export a network in Python: "
                                              "torch.jit.script(net).save(\"net.pt\")"));
    }
    if (is_quantized(module)) {
        throw ModelError("RT-M91", detail::concat(file, " has quantized weights, which cannot be "
                                                        "trained; export the network before "
                                                        "quantizing it"));
    }
    // torch.jit.freeze() removes the mode, and can keep some parameters.
    const bool may_be_frozen =
        module.parameters(/*recurse=*/true).size() == 0 || !module.hasattr("training");
    if (may_be_frozen && has_tensor_constants(module)) {
        throw ModelError("RT-M85",
                         detail::concat(file, " has weights that are constants, as "
                                              "torch.jit.freeze() and optimize_for_inference() "
                                              "make them: they would not be trained; export the "
                                              "network without them"));
    }
    warn_of_fixed_mode(module, file);
}

} // namespace rtrain::script
