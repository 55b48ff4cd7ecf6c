// SPDX-License-Identifier: Apache-2.0
/// @file
/// Saving and loading the base class of a class that derives from an optimizer or scheduler of
/// torch::optim and saves itself.
#pragma once

#include <rtrain/state/optimizer_state.hpp>
#include <rtrain/state/scheduler_state.hpp>
#include <rtrain/state/state_io.hpp>

#include <torch/optim.h>

#include <concepts>
#include <typeinfo>

namespace rtrain::checkpoint {

/// Saves the state of `Base`, for save() of a class that derives from an optimizer or scheduler of
/// torch::optim.
///
/// @code
/// struct Lookahead : torch::optim::SGD {
///     using SGD::SGD;
///     int steps = 0;
///     void save(rtrain::StateWriter& out) const {
///         rtrain::checkpoint::save_as<torch::optim::SGD>(*this, out);
///         out.value("steps", steps);
///     }
///     void load(const rtrain::StateReader& in) {
///         rtrain::checkpoint::load_as<torch::optim::SGD>(*this, in);
///         steps = in.value("steps").to_number<int>();
///     }
/// };
/// @endcode
template <class Base, std::derived_from<Base> T>
void save_as(const T& object, StateWriter& out) {
    auto& base = const_cast<T&>(object); // torch's accessors are not const
    if constexpr (std::derived_from<Base, torch::optim::Optimizer>) {
        save_optimizer(base, out, typeid(Base));
    } else {
        save_scheduler(base, out);
    }
}
/// Loads what save_as() has saved.
template <class Base, std::derived_from<Base> T>
void load_as(T& object, const StateReader& in) {
    if constexpr (std::derived_from<Base, torch::optim::Optimizer>) {
        load_optimizer(object, in, typeid(Base));
    } else {
        load_scheduler(object, in);
    }
}

} // namespace rtrain::checkpoint
