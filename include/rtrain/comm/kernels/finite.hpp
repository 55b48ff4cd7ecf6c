// SPDX-License-Identifier: Apache-2.0
/// @file
/// Check that numbers in memory are finite, in one pass. Infinities and NaN have all bits of the
/// exponent set, so the largest exponent is sufficient.
#pragma once

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rtrain::comm {
namespace kernels {

/// The largest exponent of `elements` numbers as long as `Bits`; `mask` has the exponent's bits.
template <class Bits>
[[gnu::always_inline]] inline Bits largest_exponent(const std::byte* data, std::int64_t elements,
                                                    Bits mask) {
    Bits largest = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
        Bits bits;
        std::memcpy(&bits, data + i * static_cast<std::int64_t>(sizeof bits), sizeof bits);
        bits = static_cast<Bits>(bits & mask);
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

template <class Bits>
[[gnu::always_inline]] inline bool finite_blocks(const std::byte* data, std::int64_t elements,
                                                 Bits mask) {
    // A constant number of elements at a time is what g++ vectorises at -O2.
    constexpr std::int64_t bytes = 4096;
    constexpr std::int64_t block = bytes / static_cast<std::int64_t>(sizeof(Bits));
    Bits largest = 0;
    for (; elements >= block; elements -= block, data += bytes) {
        largest = std::max(largest, largest_exponent(data, block, mask));
    }
    return std::max(largest, largest_exponent(data, elements, mask)) != mask;
}

#if defined(__x86_64__) && defined(__GNUC__)
template <class Bits>
[[gnu::target("avx2")]] bool finite_avx2(const std::byte* data, std::int64_t elements, Bits mask) {
    return finite_blocks(data, elements, mask);
}
#endif

template <class Bits>
[[nodiscard]] bool finite(const std::byte* data, std::int64_t elements, Bits mask) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2")) {
        return finite_avx2(data, elements, mask);
    }
#endif
    return finite_blocks(data, elements, mask);
}

} // namespace kernels

/// True if all `elements` of a type are finite. Types other than the usual floating-point ones,
/// float, double, half, bfloat16 and complex, count as finite.
[[nodiscard]] inline bool all_finite(at::ScalarType type, const std::byte* data,
                                     std::int64_t elements) {
    switch (type) {
    case at::kComplexFloat:
        return kernels::finite<std::int32_t>(data, 2 * elements, 0x7f800000);
    case at::kComplexDouble:
        return kernels::finite<std::int64_t>(data, 2 * elements, 0x7ff0000000000000);
    case at::kFloat:
        return kernels::finite<std::int32_t>(data, elements, 0x7f800000);
    case at::kDouble:
        return kernels::finite<std::int64_t>(data, elements, 0x7ff0000000000000);
    case at::kHalf:
        return kernels::finite<std::int16_t>(data, elements, 0x7c00);
    case at::kBFloat16:
        return kernels::finite<std::int16_t>(data, elements, 0x7f80);
    default:
        return true;
    }
}

} // namespace rtrain::comm
