// SPDX-License-Identifier: Apache-2.0
/// @file
/// A scripted module as a torch::nn::Module: it registers the script's own tensors under their own
/// names, module by module. So optimizers, prepare() and State see ordinary parameters, and the
/// script sees every change of them.
#pragma once

#include <rtrain/model/scripted_module.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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

/// Makes tensors that share memory one tensor. Python saves tied weights once, but a loaded program
/// may hold several tensors of that memory, of which each would get its own gradient.
class TiedTensors {
public:
    /// Replaces tensors of `module` by equal ones that were seen before.
    void tie(const torch::jit::Module& module) {
        const auto& object = module._ivalue();
        for (std::size_t slot = 0; slot < object->slots().size(); ++slot) {
            const c10::IValue& value = object->getSlot(slot);
            if (value.isTensor() && value.toTensor().defined() && value.toTensor().has_storage() &&
                value.toTensor().numel() > 0) {
                const at::Tensor tensor = value.toTensor();
                const at::Tensor& first = seen_.try_emplace(key_of(tensor), tensor).first->second;
                if (!first.is_same(tensor)) {
                    object->setSlot(slot, first);
                }
            }
        }
    }

private:
    using Key = std::tuple<const c10::StorageImpl*, std::int64_t, std::vector<std::int64_t>,
                           std::vector<std::int64_t>, at::ScalarType>;
    [[nodiscard]] static Key key_of(const at::Tensor& tensor) {
        return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(),
                tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()};
    }
    std::map<Key, at::Tensor> seen_;
};

/// One module of a script, with its children. Its name is that of the Python class.
class ScriptPart : public torch::nn::Module, public rtrain::detail::ScriptedModule {
public:
    explicit ScriptPart(torch::jit::Module script)
        : torch::nn::Module(script.type()->name()->name()), script_(std::move(script)) {
        torch::nn::Module::train(script_.is_training());
        for (const auto& parameter : script_.named_parameters(/*recurse=*/false)) {
            register_parameter(parameter.name, parameter.value, parameter.value.requires_grad());
        }
        for (const auto& buffer : script_.named_buffers(/*recurse=*/false)) {
            register_buffer(buffer.name, buffer.value);
            buffers_here_.emplace_back(script_.type()->getAttributeSlot(buffer.name), buffer.value);
            names_of_buffers_.push_back(buffer.name);
        }
        for (const auto& child : script_.named_children()) {
            parts_.push_back(
                register_module(child.name, std::make_shared<ScriptPart>(child.value)));
        }
    }

    /// Switches the script, too.
    void train(bool on = true) override {
        torch::nn::Module::train(on);
        if (script_.type()->hasAttribute("training")) {
            script_.setattr("training", on);
        }
    }

    /// The scripted module. Its tensors are those of this module.
    [[nodiscard]] const torch::jit::Module& script() const noexcept { return script_; }

protected:
    /// Registers the new tensor of each buffer that the script has assigned, as in `self.mean =
    /// 0.9 * self.mean + 0.1 * x`.
    void follow_assignments() {
        for (std::size_t i = 0; i < buffers_here_.size(); ++i) {
            auto& [slot, known] = buffers_here_[i];
            const c10::IValue& value = script_._ivalue()->getSlot(slot);
            if (value.isTensor() && !value.toTensor().is_same(known)) {
                known = value.toTensor();
                reveal_buffers(*this)[names_of_buffers_[i]] = known;
            }
        }
        for (const auto& part : parts_) {
            part->follow_assignments();
        }
    }
    /// True if a buffer is registered in this module or below.
    [[nodiscard]] bool has_buffers() const {
        bool any = !buffers_here_.empty();
        for (const auto& part : parts_) {
            any = any || part->has_buffers();
        }
        return any;
    }

private:
    torch::jit::Module script_;
    std::vector<std::pair<std::size_t, at::Tensor>> buffers_here_; ///< slot and tensor
    std::vector<std::string> names_of_buffers_;
    std::vector<std::shared_ptr<ScriptPart>> parts_;
};

} // namespace rtrain::script
