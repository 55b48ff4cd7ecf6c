// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an optimizer keeps for a parameter, for those who move it elsewhere.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/state/optimizer_parts.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <typeinfo>

namespace rtrain::checkpoint {

/// Calls `visit` with the name and the tensor of all that is kept for a parameter. Throws
/// CheckpointError [RT-K7] for an optimizer that is none of torch::optim's.
void visit_optimizer_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                           const std::function<void(const char*, at::Tensor&)>& visit);

/// The class of an optimizer; of a prepared one, the class that was prepared.
[[nodiscard]] inline const std::type_info& class_of(const torch::optim::Optimizer& optimizer) {
    const auto* const prepared = dynamic_cast<const HoldsParts*>(&optimizer);
    return prepared != nullptr ? prepared->prepared_class() : typeid(optimizer);
}

/// An optimizer that is told when what it keeps for a parameter has been loaded.
class HearsOfLoads {
public:
    virtual void loaded(const at::Tensor& parameter) = 0;

protected:
    HearsOfLoads() = default;
    HearsOfLoads(const HearsOfLoads&) = default;
    HearsOfLoads& operator=(const HearsOfLoads&) = default;
    ~HearsOfLoads() = default;
};

} // namespace rtrain::checkpoint

#ifndef RTRAIN_COMPILED
#include <rtrain/state/optimizer_state.hpp>
#endif
