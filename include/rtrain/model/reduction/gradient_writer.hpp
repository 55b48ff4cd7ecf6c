// SPDX-License-Identifier: Apache-2.0
/// @file
/// Moves gradients into bucket memory, multiplied by a factor on the way.
#pragma once

#include <rtrain/comm/memory/shared_writer.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace rtrain::detail {

class GradientWriter {
public:
    /// out = in * factor, a scalar tensor. `out` may be `in`; an `out` of a wider type gets the
    /// product in that type.
    void scale_into(at::Tensor& out, const at::Tensor& in, const at::Tensor& factor) {
        if (in.scalar_type() != out.scalar_type()) {
            at::mul_out(out, out.copy_(in), factor);
            return;
        }
        const bool plain = in.scalar_type() == at::kFloat && in.is_cpu() &&
                           in.strides() == out.strides() && in.is_non_overlapping_and_dense();
        if (!plain) {
            at::mul_out(out, in, factor);
            return;
        }
        const std::int64_t elements = in.numel();
        const float by = *factor.const_data_ptr<float>();
        const auto* const from = in.const_data_ptr<float>();
        auto* const to = out.mutable_data_ptr<float>();
        constexpr std::int64_t few = 1024; // calling ATen for them takes ten times as long
        if (elements <= few) {
            for (std::int64_t i = 0; i < elements; ++i) {
                to[i] = from[i] * by;
            }
        } else if (from == to) {
            at::mul_out(out, in, factor);
        } else {
            writer_.scale(to, from, by, elements, [&] { at::mul_out(out, in, factor); });
        }
    }

private:
    comm::SharedWriter writer_;
};

/// 1 / divisor, in the type needed to multiply gradients of `type`, so that no step converts it;
/// kernels for types of two bytes compute in float32.
[[nodiscard]] inline at::Tensor scale_for(double divisor, at::ScalarType type) {
    return at::scalar_tensor(1.0 / divisor, c10::isReducedFloatingType(type) ? at::kFloat : type);
}

/// A gradient in one dimension, in the memory order of its parameter.
[[nodiscard]] inline at::Tensor in_memory_order(const at::Tensor& gradient,
                                                const at::Tensor& parameter) {
    const bool alike = gradient.strides() == parameter.strides() ||
                       (gradient.is_contiguous() && parameter.is_contiguous());
    const at::Tensor dense =
        alike && gradient.is_non_overlapping_and_dense()
            ? gradient
            : at::empty_strided(parameter.sizes(), parameter.strides(), gradient.options())
                  .copy_(gradient);
    return dense.as_strided({dense.numel()}, {1});
}

} // namespace rtrain::detail
