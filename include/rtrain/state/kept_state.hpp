// SPDX-License-Identifier: Apache-2.0
/// @file
/// The state that an optimizer keeps for a parameter, for code that moves it elsewhere.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/state/optimizer_parts.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <typeinfo>

namespace rtrain::checkpoint {

/// Calls `visit` with the name and tensor of each state entry of a parameter. Throws
/// CheckpointError [RT-K7] for an optimizer that is not in torch::optim.
void visit_optimizer_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                           const std::function<void(const char*, at::Tensor&)>& visit);

/// Returns the class of an optimizer; for a prepared one, the class that was prepared.
[[nodiscard]] inline const std::type_info& class_of(const torch::optim::Optimizer& optimizer) {
    const auto* const prepared = dynamic_cast<const HoldsParts*>(&optimizer);
    return prepared != nullptr ? prepared->prepared_class() : typeid(optimizer);
}

/// An optimizer that is notified after the state of a parameter has been loaded.
class LoadListener {
public:
    virtual void loaded(const at::Tensor& parameter) = 0;

protected:
    LoadListener() = default;
    LoadListener(const LoadListener&) = default;
    LoadListener& operator=(const LoadListener&) = default;
    ~LoadListener() = default;
};

} // namespace rtrain::checkpoint

#ifndef RTRAIN_COMPILED
#include <rtrain/state/optimizer_state.hpp>
#endif
