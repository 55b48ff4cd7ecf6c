// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes tensors that share memory one tensor. Python saves tied weights once, but a loaded program
/// may hold several tensors of that memory, of which each would get its own gradient.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

namespace rtrain::script {

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

} // namespace rtrain::script
