// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door gradients.hpp.
#pragma once

#include <rtrain/fit/gradients.hpp>

namespace rtrain::detail {

RTRAIN_DOOR void save_gradients(const torch::nn::Module& module, StateWriter& out) {
    out.per_rank([&](StateWriter& mine) {
        for (const auto& item : module.named_parameters()) {
            if (const at::Tensor& gradient = item.value().grad(); gradient.defined()) {
                mine.tensor(item.key(), gradient);
            }
        }
    });
}

RTRAIN_DOOR void load_gradients(torch::nn::Module& module, const StateReader& in) {
    in.per_rank([&](const StateReader& mine) {
        for (auto& item : module.named_parameters()) {
            item.value().mutable_grad() =
                mine.has_tensor(item.key()) ? mine.tensor(item.key()).clone() : at::Tensor();
        }
    });
}

} // namespace rtrain::detail
