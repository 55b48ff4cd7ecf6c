// SPDX-License-Identifier: Apache-2.0
/// @file
/// Saving and loading modules: parameters and buffers by their names.
#pragma once

#include <rtrain/backend/writable.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/state/exact_parts.hpp>
#include <rtrain/state/object_state.hpp>
#include <rtrain/state/state_io.hpp>

#include <torch/nn/module.h>

#include <string>

namespace rtrain::checkpoint {

RTRAIN_DOOR void save_module(const torch::nn::Module& module, StateWriter& out) {
    for (const auto& item : module.named_parameters()) {
        if (const auto part = ExactParts::find(item.value())) {
            out.elements(item.key(), part->of.shape, part->of.begin,
                         in_rows(part->of, part->elements));
        } else {
            out.tensor(item.key(), item.value());
        }
        if (out.is_stepped(item.value())) {
            out.late(item.key());
        }
    }
    for (const auto& item : module.named_buffers()) {
        if (item.value().defined()) {
            out.tensor_of_rank_0(item.key(), item.value());
        }
    }
}

/// Copies into the module's own tensors. Throws CheckpointError [RT-K3] naming the first tensor
/// that is missing, has another shape, or is not the module's; then nothing is changed.
RTRAIN_DOOR void load_module(torch::nn::Module& module, const StateReader& in) {
    const torch::NoGradGuard no_grad;
    auto targets = module.named_parameters();
    for (const auto& item : module.named_buffers()) {
        if (item.value().defined()) {
            targets.insert(item.key(), item.value());
        }
    }
    for (const auto& item : targets) {
        const at::Tensor saved = in.tensor(item.key());
        if (saved.sizes() != item.value().sizes()) {
            throw CheckpointError("RT-K3", detail::concat("\"", in.prefix(), item.key(), "\" is ",
                                                          saved.sizes(), " in the checkpoint, but ",
                                                          item.value().sizes(), " in the model"));
        }
    }
    const auto& saved = in.snapshot().tensors;
    for (auto next = saved.lower_bound(in.prefix());
         next != saved.end() && next->first.starts_with(in.prefix()); ++next) {
        if (!targets.contains(next->first.substr(in.prefix().size()))) {
            throw CheckpointError("RT-K3", detail::concat("the checkpoint holds \"", next->first,
                                                          "\", which the model does not have"));
        }
    }
    for (auto& item : targets) {
        const auto part = ExactParts::find(item.value());
        if (!part || !part->loaded) {
            detail::writable(item.value()).copy_(in.tensor(item.key()));
        }
        if (part) {
            const auto& [of, elements, loaded] = *part;
            detail::writable(elements).copy_(in_memory(
                of, in.elements(item.key(), of.shape, of.begin, of.begin + elements.numel())));
            if (loaded) {
                loaded();
            }
        }
    }
}

} // namespace rtrain::checkpoint
