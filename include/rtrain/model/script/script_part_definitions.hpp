// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door script_part.hpp.
#pragma once

#include <rtrain/model/script/script_part.hpp>

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <utility>

namespace rtrain::script {

/// A private member, accessed through explicit instantiation; see scheduler_state.hpp.
template <auto Member>
struct RevealBuffers {
    friend torch::OrderedDict<std::string, at::Tensor>& reveal_buffers(torch::nn::Module& module) {
        return module.*Member;
    }
};
torch::OrderedDict<std::string, at::Tensor>& reveal_buffers(torch::nn::Module& module);
template struct RevealBuffers<&torch::nn::Module::buffers_>;

RTRAIN_DOOR ScriptPart::ScriptPart(torch::jit::Module script)
    : torch::nn::Module(script.type()->name()->name()), script_(std::move(script)) {
    torch::nn::Module::train(script_.is_training());
    for (const auto& parameter : script_.named_parameters(/*recurse=*/false)) {
        register_parameter(parameter.name, parameter.value, parameter.value.requires_grad());
    }
    for (const auto& buffer : script_.named_buffers(/*recurse=*/false)) {
        register_buffer(buffer.name, buffer.value);
        buffers_here_.push_back(
            {buffer.name, script_.type()->getAttributeSlot(buffer.name), buffer.value});
    }
    for (const auto& child : script_.named_children()) {
        parts_.push_back(register_module(child.name, std::make_shared<ScriptPart>(child.value)));
    }
}

RTRAIN_DOOR void ScriptPart::train(bool on) {
    torch::nn::Module::train(on);
    if (script_.type()->hasAttribute("training")) {
        script_.setattr("training", on);
    }
}

RTRAIN_DOOR void ScriptPart::follow_assignments() {
    for (Buffer& buffer : buffers_here_) {
        const c10::IValue& value = script_._ivalue()->getSlot(buffer.slot);
        if (value.isTensor() && !value.toTensor().is_same(buffer.known)) {
            buffer.known = value.toTensor();
            reveal_buffers(*this)[buffer.name] = buffer.known;
        }
    }
    for (const auto& part : parts_) {
        part->follow_assignments();
    }
}

RTRAIN_DOOR bool ScriptPart::has_buffers() const {
    return !buffers_here_.empty() ||
           std::any_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part->has_buffers(); });
}

} // namespace rtrain::script
