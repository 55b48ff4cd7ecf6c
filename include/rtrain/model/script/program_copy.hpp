// SPDX-License-Identifier: Apache-2.0
/// @file
/// A program to write: other modules, which may have another mode, with the same tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/jit/api/module.h>

#include <cstddef>
#include <unordered_map>

namespace rtrain::script {

/// Copies modules. libtorch writes the whole memory of a tensor, so tensors in memory that holds
/// more, as in sharded models, are copied, too. torch's deepcopy() would take all tensors of one
/// memory for the same.
class ProgramCopy {
public:
    [[nodiscard]] torch::jit::Module of(const torch::jit::Module& module) {
        return torch::jit::Module(copy_of(module._ivalue()));
    }

private:
    using ObjectPtr = c10::intrusive_ptr<c10::ivalue::Object>;

    [[nodiscard]] ObjectPtr copy_of(const ObjectPtr& object) {
        if (const auto known = objects_.find(object.get()); known != objects_.end()) {
            return known->second;
        }
        ObjectPtr copy = object->copy(); // with the same values
        objects_.emplace(object.get(), copy);
        for (std::size_t slot = 0; slot < copy->slots().size(); ++slot) {
            const c10::IValue& value = object->getSlot(slot);
            if (value.isModule()) {
                copy->setSlot(slot, copy_of(value.toObject()));
            } else if (value.isTensor()) {
                copy->setSlot(slot, with_its_memory(value.toTensor()));
            }
        }
        return copy;
    }

    /// Tied tensors stay tied.
    [[nodiscard]] at::Tensor with_its_memory(const at::Tensor& tensor) {
        if (!tensor.defined() || !tensor.has_storage() ||
            tensor.storage().nbytes() == tensor.nbytes()) {
            return tensor;
        }
        at::Tensor& copy = tensors_[tensor.unsafeGetTensorImpl()];
        if (!copy.defined()) {
            const c10::NoGradGuard no_grad;
            copy = tensor.clone().set_requires_grad(tensor.requires_grad());
        }
        return copy;
    }

    std::unordered_map<const c10::ivalue::Object*, ObjectPtr> objects_;
    std::unordered_map<const at::TensorImpl*, at::Tensor> tensors_;
};

} // namespace rtrain::script
