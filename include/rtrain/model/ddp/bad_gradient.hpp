// SPDX-License-Identifier: Apache-2.0
/// @file
/// DataParallelOptions::check_gradients: finds the first averaged gradient that is not finite.
#pragma once

#include <rtrain/model/ddp/gradient_store.hpp>
#include <rtrain/model/parameters/buckets.hpp>
#include <rtrain/model/parameters/usage_tracker.hpp>
#include <rtrain/model/reduction/finite.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace rtrain::detail {

struct BadGradient {
    std::size_t parameter = 0;
    bool is_nan = false; ///< else it is infinite
};

/// To be called before the store hands gradients out. `sparse`: by parameter, true if its gradient
/// is not in the store.
[[nodiscard]] inline std::optional<BadGradient>
find_bad_gradient(const std::vector<NamedParameter>& parameters, const std::vector<bool>& sparse,
                  const UsageTracker& use, GradientStore& store) {
    const bool store_is_finite = store.are_finite();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (!use.is_used(i)) {
            continue;
        }
        if (sparse[i]) {
            const at::Tensor& gradient = parameters[i].tensor.grad();
            const at::Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
            if (!all_finite(values)) {
                return BadGradient{i, values.isnan().any().item<bool>()};
            }
        } else if (!store_is_finite && !store.is_finite(i)) {
            return BadGradient{i, store.holds_nan(i)};
        }
    }
    return std::nullopt;
}

} // namespace rtrain::detail
