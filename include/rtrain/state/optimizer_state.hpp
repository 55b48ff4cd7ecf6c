// SPDX-License-Identifier: Apache-2.0
/// @file
/// Saving and loading the optimizers of torch::optim. Unlike in torch's pickle, every field has a
/// name, so that loading runs no code and other languages can read the files.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/state/optimizer_parts.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <typeinfo>

namespace rtrain::checkpoint {

/// Returns the class of an optimizer; for a prepared one, the class that was prepared.
[[nodiscard]] inline const std::type_info& class_of(const torch::optim::Optimizer& optimizer) {
    const auto* const prepared = dynamic_cast<const HoldsParts*>(&optimizer);
    return prepared != nullptr ? prepared->prepared_class() : typeid(optimizer);
}

/// Saves the options of every parameter group and the state of every parameter, as for the class
/// `as`. Throws CheckpointError [RT-K7] if the class is not in torch::optim, [RT-K30] for a
/// parameter in two groups.
void save_optimizer(torch::optim::Optimizer& optimizer, const StateWriter& out,
                    const std::type_info& as);
/// Finds parameters by name if the state has their modules, else by position. Throws
/// CheckpointError [RT-K3] if the saved optimizer has a different class or different parameters.
void load_optimizer(torch::optim::Optimizer& optimizer, const StateReader& in,
                    const std::type_info& as);
/// Saves the optimizer as its own class.
inline void save_optimizer(torch::optim::Optimizer& optimizer, const StateWriter& out) {
    save_optimizer(optimizer, out, class_of(optimizer));
}
inline void load_optimizer(torch::optim::Optimizer& optimizer, const StateReader& in) {
    load_optimizer(optimizer, in, class_of(optimizer));
}

/// Replaces the state kept for the parameter `whole` by that of `part`, its elements `of`.
void cut_optimizer_state(torch::optim::Optimizer& optimizer, const at::Tensor& whole,
                         const at::Tensor& part, const PartOf& of);

/// Calls `visit` with the name and tensor of each state entry of a parameter. Throws
/// CheckpointError [RT-K7] for an optimizer that is not in torch::optim.
void visit_optimizer_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                           const std::function<void(const char*, at::Tensor&)>& visit);

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
#include <rtrain/state/optimizer_state_definitions.hpp>
#endif
