// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether memory of gradients holds an infinity or NaN, in one pass over it: both have all bits of
/// the exponent set, so the largest exponent tells.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rtrain::detail {

/// The largest exponent of `elements` numbers that are as long as `Bits`; `exponent` has its bits.
template <class Bits>
[[gnu::always_inline]] inline Bits largest_exponent(const std::byte* data, std::int64_t elements,
                                                    Bits exponent) {
    Bits largest = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
        Bits bits;
        std::memcpy(&bits, data + i * static_cast<std::int64_t>(sizeof bits), sizeof bits);
        bits = static_cast<Bits>(bits & exponent);
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

template <class Bits>
[[gnu::always_inline]] inline bool finite_blocks(const std::byte* data, std::int64_t elements,
                                                 Bits exponent) {
    // A constant number of elements at a time is what g++ vectorises at -O2.
    constexpr std::int64_t bytes = 4096;
    constexpr std::int64_t block = bytes / static_cast<std::int64_t>(sizeof(Bits));
    Bits largest = 0;
    for (; elements >= block; elements -= block, data += bytes) {
        largest = std::max(largest, largest_exponent(data, block, exponent));
    }
    return std::max(largest, largest_exponent(data, elements, exponent)) != exponent;
}

#if defined(__x86_64__) && defined(__GNUC__)
template <class Bits>
[[gnu::target("avx2")]] bool finite_avx2(const std::byte* data, std::int64_t elements,
                                         Bits exponent) {
    return finite_blocks(data, elements, exponent);
}
#endif

template <class Bits>
[[nodiscard]] bool all_finite(const void* data, std::int64_t elements, Bits exponent) {
    const auto* const bytes = static_cast<const std::byte*>(data);
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2")) {
        return finite_avx2(bytes, elements, exponent);
    }
#endif
    return finite_blocks(bytes, elements, exponent);
}

/// Whether all elements are finite. Waits for the tensor's device.
[[nodiscard]] inline bool all_finite(const at::Tensor& tensor) {
    const bool flat = tensor.is_cpu() && tensor.is_non_overlapping_and_dense();
    const void* const data = flat ? tensor.const_data_ptr() : nullptr;
    switch (flat ? tensor.scalar_type() : at::ScalarType::Undefined) {
    case at::kFloat:
        return all_finite<std::int32_t>(data, tensor.numel(), 0x7f800000);
    case at::kComplexFloat:
        return all_finite<std::int32_t>(data, 2 * tensor.numel(), 0x7f800000);
    case at::kDouble:
        return all_finite<std::int64_t>(data, tensor.numel(), 0x7ff0000000000000);
    case at::kComplexDouble:
        return all_finite<std::int64_t>(data, 2 * tensor.numel(), 0x7ff0000000000000);
    case at::kHalf:
        return all_finite<std::int16_t>(data, tensor.numel(), 0x7c00);
    case at::kBFloat16:
        return all_finite<std::int16_t>(data, tensor.numel(), 0x7f80);
    default: // the largest magnitude takes one kernel, which also carries NaN
        return tensor.numel() == 0 ||
               std::isfinite(
                   at::linalg_vector_norm(tensor, INFINITY).to(at::kDouble).item<double>());
    }
}

} // namespace rtrain::detail
