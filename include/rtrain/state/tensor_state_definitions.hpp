// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door tensor_state.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/state/generator_state.hpp>
#include <rtrain/state/state_io.hpp>
#include <rtrain/state/tensor_state.hpp>

#include <torch/types.h>

namespace rtrain::checkpoint {

RTRAIN_DOOR void save_tensor(const at::Tensor& tensor, StateWriter& out) {
    out.tensor("tensor", tensor);
    out.value("requires_grad", tensor.defined() && tensor.is_leaf() && tensor.requires_grad());
}

RTRAIN_DOOR void load_tensor(at::Tensor& tensor, const StateReader& in) {
    const torch::NoGradGuard no_grad;
    const at::Tensor saved = in.tensor("tensor");
    if (tensor.defined() && tensor.sizes() == saved.sizes()) {
        tensor.copy_(saved);
    } else {
        tensor = saved.clone().to(tensor.defined() ? tensor.device() : at::kCPU);
    }
    if (in.snapshot().same_run && in.has_value("requires_grad") && tensor.is_leaf()) {
        tensor.set_requires_grad(in.value("requires_grad").as_bool());
    }
}

RTRAIN_DOOR void load_generator(at::Generator generator, const StateReader& in) {
    if (in.has_tensor("state/0")) {
        load_generator(generator, in, "state", in.snapshot().rank);
    } else { // an older checkpoint, with rank 0's
        generator.set_state(in.tensor("state").clone());
    }
}

} // namespace rtrain::checkpoint
