// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names of the tensors in a state; optimizers save and find the state of each parameter by them.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

class ParameterNames {
public:
    void add(std::string name, const at::Tensor& tensor) {
        names_[tensor.unsafeGetTensorImpl()].push_back(name);
        tensors_.emplace(std::move(name), tensor);
    }
    /// All names of a tensor: several if modules share it, none if it is not in the state.
    [[nodiscard]] std::vector<std::string> of(const at::Tensor& tensor) const {
        const auto found = names_.find(tensor.unsafeGetTensorImpl());
        return found == names_.end() ? std::vector<std::string>() : found->second;
    }
    /// Returns an undefined tensor for a name that is not in the state.
    [[nodiscard]] at::Tensor find(const std::string& name) const {
        const auto found = tensors_.find(name);
        return found == tensors_.end() ? at::Tensor() : found->second;
    }

private:
    std::unordered_map<const void*, std::vector<std::string>> names_;
    std::map<std::string, at::Tensor> tensors_;
};

} // namespace rtrain::checkpoint
