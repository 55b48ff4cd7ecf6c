// SPDX-License-Identifier: Apache-2.0
/// @file
/// WeightParts: the weights of a model that this rank may write.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/model/ddp/prepared_model.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace rtrain::detail {

/// The handle that worker.prepare(model) returns.
template <class Handle>
concept PreparedHandle = requires(const Handle& model) {
    { model.prepared() } -> std::convertible_to<std::shared_ptr<PreparedModel>>;
};

/// A model's parameters as this rank may write them: whole, or its parts of a sharded model's.
class WeightParts {
public:
    /// Parameters of a module. Throws ConfigError [RT-F19] if it is sharded.
    WeightParts(const torch::nn::Module& module); // NOLINT(google-explicit-constructor)
    /// Parameters of a prepared model, from its handle.
    template <PreparedHandle Handle>
    WeightParts(const Handle& model) // NOLINT(google-explicit-constructor)
        : WeightParts(*model, model.prepared()) {}

    /// In the order of the module's parameters; parts have one dimension.
    [[nodiscard]] const std::vector<at::Tensor>& tensors() const noexcept { return tensors_; }
    /// The elements that a part holds; null for a whole parameter.
    [[nodiscard]] const checkpoint::PartOf* find_part(std::size_t number) const;
    /// Runs `change`, which writes tensors(). *Collective* for a sharded model.
    void write(const std::function<void()>& change) const;

private:
    WeightParts(const torch::nn::Module& module, std::shared_ptr<PreparedModel> prepared);

    std::shared_ptr<PreparedModel> prepared_; ///< null: not prepared
    std::vector<at::Tensor> tensors_;
};

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/model/weight_parts_definitions.hpp>
#endif
