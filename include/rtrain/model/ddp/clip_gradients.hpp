// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gradient clipping by global norm.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/parameters/recording.hpp>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace rtrain::detail {

/// The p-norm of all elements, as a scalar tensor. Sums of squares in float32 lose digits with
/// every element, so norms of short rows are combined in float64.
[[nodiscard]] inline at::Tensor norm_of(const at::Tensor& tensor, double norm_type) {
    constexpr std::int64_t row = 4096;
    const bool flat = tensor.dim() == 1 && tensor.is_contiguous() && tensor.numel() > row;
    if (!flat) {
        return at::linalg_vector_norm(tensor, norm_type);
    }
    const std::int64_t whole = tensor.numel() / row * row;
    const at::Tensor rows = tensor.slice(0, 0, whole).view({-1, row});
    std::vector<at::Tensor> norms{at::linalg_vector_norm(rows, norm_type, at::IntArrayRef{1})};
    if (whole < tensor.numel()) {
        norms.push_back(at::linalg_vector_norm(tensor.slice(0, whole), norm_type).view({1}));
    }
    return at::linalg_vector_norm(at::cat(norms).to(at::kDouble), norm_type);
}

/// Adds the memory of a parameter's gradient, if it has one; the values of a sparse one.
inline void add_gradient(std::vector<at::Tensor>& memory, const at::Tensor& parameter) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) {
        return;
    }
    if (gradient.is_sparse()) {
        gradient = gradient.coalesce();
        memory.push_back(gradient._values());
    } else {
        memory.push_back(gradient);
    }
}

/// Scales all tensors so that their common norm is at most `max_norm`; returns the norm before.
/// Where they are only this rank's, `over_ranks(norm)` returns the norm over all ranks.
template <class OverRanks>
double clip(std::vector<at::Tensor> tensors, double max_norm, double norm_type,
            bool error_if_nonfinite, OverRanks&& over_ranks) {
    if (!(norm_type > 0) || !(max_norm >= 0)) {
        throw ConfigError("RT-C11", concat("clip_grad_norm_ with max_norm ", max_norm,
                                           " and norm_type ", norm_type,
                                           "; expected 0 or more, and above 0 (infinity for the "
                                           "largest element)"));
    }
    // An empty tensor has no largest element:
    std::erase_if(tensors, [](const at::Tensor& tensor) { return tensor.numel() == 0; });
    std::vector<at::Tensor> norms;
    for (const at::Tensor& tensor : tensors) {
        const at::Tensor norm = norm_of(tensor, norm_type);
        const at::Device device = tensors.front().device();
        norms.push_back(norm.device() == device ? norm : norm.to(device));
    }
    const auto combined = [&] {
        return at::linalg_vector_norm(at::stack(norms).to(at::kDouble), norm_type);
    };
    constexpr double guard = 1e-6; // torch's, against division by zero
    if (Recording::current() != nullptr && !norms.empty() && !tensors.front().is_cpu()) {
        const at::Tensor norm = combined();
        at::_foreach_mul_(tensors, at::clamp_max(max_norm / (norm + guard), 1).to(at::kFloat));
        return std::numeric_limits<double>::quiet_NaN(); // unknown on the host
    }
    const double norm = over_ranks(norms.empty() ? 0 : combined().template item<double>());
    if (error_if_nonfinite && !std::isfinite(norm)) {
        throw ModelError("RT-M6", concat("the norm of the gradients is ", norm,
                                         ", so they cannot be clipped; lower the learning rate or "
                                         "scale the loss, or set error_if_nonfinite = false"));
    }
    const double factor = max_norm / (norm + guard);
    if (!(factor >= 1)) { // also for NaN, which all gradients then become, as in torch
        for (at::Tensor& tensor : tensors) {
            tensor.mul_(factor);
        }
    }
    return norm;
}

} // namespace rtrain::detail
