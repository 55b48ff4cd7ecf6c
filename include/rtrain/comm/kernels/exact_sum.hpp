// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reducible types, and sums of integers that never wrap around: ranks add in a wider form, and a
/// sum that exceeds its type is an error.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/kernels/reduce_op.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rtrain::comm {

/// Throws CommError for unsupported reductions: RT-X7 for a mean of integers, RT-X11 for other
/// types.
inline void require_reducible(at::ScalarType type, ReduceOp op) {
    const bool complex = type == at::kComplexFloat || type == at::kComplexDouble;
    const bool floating = type == at::kFloat || type == at::kDouble || type == at::kHalf ||
                          type == at::kBFloat16 || complex;
    const bool integral = c10::isIntegralType(type, true);
    if (op == ReduceOp::mean && integral) {
        throw CommError("RT-X7", detail::concat("the mean of ", c10::toString(type),
                                                " tensors is not an integer; reduce a sum, or "
                                                "convert to a floating-point type first"));
    }
    const bool ordered = op == ReduceOp::min || op == ReduceOp::max;
    if (!(floating || integral) || (complex && ordered)) {
        throw CommError("RT-X11", detail::concat("ranks cannot ", ordered ? "order" : "add",
                                                 " tensors of type ", c10::toString(type),
                                                 "; convert to another type first"));
    }
}

/// True for reductions that can exceed the type. A sum of bools is their disjunction.
[[nodiscard]] inline bool can_overflow(at::ScalarType type, ReduceOp op) {
    return op == ReduceOp::sum && c10::isIntegralType(type, /*includeBool=*/false);
}

namespace exact {

inline constexpr std::int64_t low_bits = 0xffffffff;

[[nodiscard]] inline bool is_unsigned(at::ScalarType type) {
    return type == at::kByte || type == at::kUInt16 || type == at::kUInt32 || type == at::kUInt64;
}

/// Returns the tensor as int64, in which 2^31 ranks can add. 64-bit types become two numbers, their
/// halves.
[[nodiscard]] inline at::Tensor widened(const at::Tensor& tensor) {
    if (tensor.element_size() < static_cast<std::int64_t>(sizeof(std::int64_t))) {
        return tensor.to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
    }
    const at::Tensor bits = tensor.view(at::kLong);
    at::Tensor high = at::bitwise_right_shift(bits, 32);
    if (is_unsigned(tensor.scalar_type())) {
        high.bitwise_and_(low_bits);
    }
    return at::stack({high, bits.bitwise_and(low_bits)}, -1);
}

/// Throws CommError [RT-X26] unless all are integers of `bits`, times 2^`shift`.
inline void require_in_range(const at::Tensor& sums, std::size_t bits, int shift,
                             at::ScalarType type, int ranks) {
    const std::int64_t count = std::int64_t{1} << bits;
    const std::int64_t least = is_unsigned(type) ? 0 : -count / 2;
    const auto most = least + count - 1;
    const auto low = sums.min().item<std::int64_t>();
    const auto high = sums.max().item<std::int64_t>();
    if (low >= least && high <= most) {
        return;
    }
    const auto value = [&](std::int64_t number) {
        return shift == 0
                   ? std::to_string(number)
                   : detail::concat("about ", std::ldexp(static_cast<double>(number), shift));
    };
    throw CommError("RT-X26",
                    detail::concat("a sum of ", c10::toString(type), " over ", ranks, " ranks is ",
                                   value(low < least ? low : high), ", but the type holds ",
                                   value(least), " to ", value(most),
                                   "; convert to a wider type before the reduction, such as ",
                                   shift == 0 ? "tensor.to(at::kLong)" : "tensor.to(at::kDouble)"));
}

/// The inverse of widened(), applied to the sum of its results.
[[nodiscard]] inline at::Tensor narrowed(const at::Tensor& sum, at::ScalarType type, int ranks) {
    constexpr std::size_t half = 32;
    const std::size_t bits = 8 * c10::elementSize(type);
    if (bits <= half) {
        if (sum.numel() > 0) {
            require_in_range(sum, bits, 0, type, ranks);
        }
        return sum.to(type);
    }
    const at::Tensor low = sum.select(-1, 1);
    const at::Tensor high = sum.select(-1, 0).add(at::bitwise_right_shift(low, 32));
    if (high.numel() > 0) {
        require_in_range(high, half, 32, type, ranks);
    }
    return at::bitwise_left_shift(high, 32).bitwise_or_(low.bitwise_and(low_bits)).view(type);
}

} // namespace exact

/// Returns `reduce(tensor)`, a reduction over `ranks`, exact even if a sum of integers exceeds
/// their type: then throws CommError [RT-X26], on all ranks that receive such a sum.
template <class Reduce>
[[nodiscard]] at::Tensor reduced_exactly(const at::Tensor& tensor, ReduceOp op, int ranks,
                                         Reduce&& reduce) {
    const at::ScalarType type = tensor.scalar_type();
    return can_overflow(type, op) ? exact::narrowed(reduce(exact::widened(tensor)), type, ranks)
                                  : reduce(tensor);
}

} // namespace rtrain::comm
